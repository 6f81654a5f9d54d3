SELECT DISTINCT window_ms, key_bytes FROM {refused}
