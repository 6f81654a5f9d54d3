CREATE TABLE IF NOT EXISTS {table} (
    window_start {type_time} NOT NULL,
    key_id {type_id} NOT NULL,
    window_end {type_time} NOT NULL,
    "key" {type_text} NOT NULL,
{result_definitions}
    revision {type_integer} NOT NULL,
    PRIMARY KEY (window_start, key_id),
    INDEX {key_index} ("key"(64))
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {refused} (
    window_ms bigint,
    key_bytes longblob NOT NULL,
    reason mediumtext CHARACTER SET utf8mb4 NOT NULL,
    record longblob NOT NULL,
    topic varchar(249) CHARACTER SET ascii NOT NULL,
    "partition" integer NOT NULL,
    "offset" bigint NOT NULL,
    refused_at datetime(3) NOT NULL
) ENGINE = InnoDB;
