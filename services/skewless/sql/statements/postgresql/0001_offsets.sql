CREATE TABLE IF NOT EXISTS skewless_offsets (
    pipeline text COLLATE "C" NOT NULL,
    stage text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    "partition" integer NOT NULL,
    cluster_id text COLLATE "C" NOT NULL,
    next_offset bigint NOT NULL,
    checkpoint text COLLATE "C" NOT NULL,
    state_schema text COLLATE "C" NOT NULL,
    leader_epoch integer,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (pipeline, stage, topic, "partition")
);
