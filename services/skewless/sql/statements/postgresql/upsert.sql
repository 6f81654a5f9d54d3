INSERT INTO {table} AS stored ({columns})
SELECT {columns} FROM skewless_batch
ON CONFLICT (window_start, key_id) DO UPDATE
SET {assignments}
WHERE excluded.revision >= stored.revision
