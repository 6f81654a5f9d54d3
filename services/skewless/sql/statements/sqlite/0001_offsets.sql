CREATE TABLE IF NOT EXISTS skewless_offsets (
    pipeline TEXT NOT NULL,
    stage TEXT NOT NULL,
    topic TEXT NOT NULL,
    "partition" INTEGER NOT NULL,
    cluster_id TEXT NOT NULL,
    next_offset INTEGER NOT NULL,
    checkpoint TEXT NOT NULL,
    state_schema TEXT NOT NULL,
    leader_epoch INTEGER,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (pipeline, stage, topic, "partition")
) WITHOUT ROWID;
