SELECT {window_start_ms}, {window_end_ms} FROM {table}
WHERE window_start >= %s
ORDER BY window_start, key_id
LIMIT 1
