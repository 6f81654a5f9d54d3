INSERT INTO {table} ({columns}) VALUES ({parameters})
ON CONFLICT (window_start, key_id) DO UPDATE
SET {assignments}
WHERE excluded.revision >= {table}.revision
