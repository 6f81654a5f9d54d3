SELECT topic, "partition", next_offset, checkpoint, state_schema, leader_epoch, cluster_id
FROM skewless_offsets
WHERE pipeline = %s AND stage = %s
