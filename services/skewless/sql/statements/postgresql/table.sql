CREATE TABLE IF NOT EXISTS {table} (
    window_start {type_time} NOT NULL,
    key_id {type_id} NOT NULL,
    window_end {type_time} NOT NULL,
    "key" {type_text} NOT NULL,
{result_definitions}
    revision {type_integer} NOT NULL,
    PRIMARY KEY (window_start, key_id)
);
CREATE INDEX IF NOT EXISTS {key_index} ON {table} USING hash ("key");
CREATE TABLE IF NOT EXISTS {refused} (
    window_ms bigint,
    key_bytes bytea NOT NULL,
    reason text NOT NULL,
    record bytea NOT NULL,
    topic text NOT NULL,
    "partition" integer NOT NULL,
    "offset" bigint NOT NULL,
    refused_at timestamptz NOT NULL
);
