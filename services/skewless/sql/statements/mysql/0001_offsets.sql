CREATE TABLE IF NOT EXISTS skewless_offsets (
    pipeline varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    stage varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic varchar(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    "partition" integer NOT NULL,
    cluster_id varchar(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    next_offset bigint NOT NULL,
    checkpoint mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    state_schema mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    leader_epoch integer,
    updated_at datetime(3) NOT NULL,
    PRIMARY KEY (pipeline, stage, topic, "partition")
) ENGINE = InnoDB;
