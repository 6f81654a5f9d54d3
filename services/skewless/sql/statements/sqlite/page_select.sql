SELECT key_id, {window_start_ms}, {window_end_ms}, {other_columns}
FROM {table}
WHERE window_start >= %s AND (window_start, key_id) > (%s, %s)
ORDER BY window_start, key_id
LIMIT %s
