SELECT attname::text, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
