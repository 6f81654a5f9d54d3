INSERT INTO skewless_offsets
    (pipeline, stage, topic, "partition", cluster_id, next_offset, checkpoint, state_schema, leader_epoch, updated_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP)
