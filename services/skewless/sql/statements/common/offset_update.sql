UPDATE skewless_offsets
SET next_offset = %s, checkpoint = %s, state_schema = %s, leader_epoch = %s, updated_at = CURRENT_TIMESTAMP
WHERE pipeline = %s AND stage = %s AND topic = %s AND "partition" = %s AND next_offset = %s AND checkpoint = %s
