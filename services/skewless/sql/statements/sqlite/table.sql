CREATE TABLE IF NOT EXISTS {table} (
    window_start {type_time} NOT NULL,
    key_id {type_id} NOT NULL,
    window_end {type_time} NOT NULL,
    "key" {type_text} NOT NULL,
{result_definitions}
    revision {type_integer} NOT NULL,
    PRIMARY KEY (window_start, key_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {key_index} ON {table} ("key");
CREATE TABLE IF NOT EXISTS {refused} (
    window_ms INTEGER,
    key_bytes BLOB NOT NULL,
    reason TEXT NOT NULL,
    record BLOB NOT NULL,
    topic TEXT NOT NULL,
    "partition" INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    refused_at TEXT NOT NULL
);
