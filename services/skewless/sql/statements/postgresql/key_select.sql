SELECT attname::text
FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass(%s) AND indisprimary
