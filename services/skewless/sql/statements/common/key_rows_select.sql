SELECT {window_start_ms}, {window_end_ms}, {other_columns}
FROM {table}
WHERE "key" = %s
ORDER BY window_start
