INSERT INTO {refused} (window_ms, key_bytes, reason, record, topic, "partition", "offset", refused_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP)
