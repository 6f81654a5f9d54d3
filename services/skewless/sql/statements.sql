-- The statements of all dialects, as templates. A dialect replaces those that differ: see `statements.Dialect`.

-- name: delete
DELETE FROM {table} WHERE window_start = %s AND key_id = %s

-- name: first_window
SELECT MIN(window_start) FROM {table}

-- name: key_rows_select
SELECT {window_start_ms}, {window_end_ms}, {other_columns}
FROM {table}
WHERE key_id = %s AND "key" = %s
ORDER BY window_start

-- name: offset_insert
INSERT INTO skewless_offsets ({offset_columns})
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP)

-- name: offset_update
UPDATE skewless_offsets
SET next_offset = %s, checkpoint = %s, state_schema = %s, leader_epoch = %s, table_name = %s,
    updated_at = CURRENT_TIMESTAMP
WHERE pipeline = %s AND stage = %s AND topic = %s AND "partition" = %s AND next_offset = %s AND checkpoint = %s

-- name: offsets_delete
DELETE FROM skewless_offsets WHERE pipeline = %s

-- name: offsets_exist
SELECT EXISTS (SELECT 1 FROM skewless_offsets WHERE pipeline = %s)

-- name: tables_of_offsets
SELECT DISTINCT stage, table_name FROM skewless_offsets WHERE pipeline = %s

-- name: other_pipelines
SELECT DISTINCT pipeline FROM skewless_offsets WHERE table_name = %s AND pipeline <> %s

-- name: offsets_select
SELECT topic, "partition", next_offset, checkpoint, state_schema, leader_epoch, cluster_id
FROM skewless_offsets
WHERE pipeline = %s AND stage = %s

-- name: refuse
INSERT INTO {refused} ({refused_columns})
VALUES (%s, %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP)

-- name: refused_delete
DELETE FROM {refused}

-- name: refused_count
SELECT COUNT(*) FROM {refused}

-- name: refused_exist
SELECT EXISTS (SELECT 1 FROM {refused})

-- name: refused_select
SELECT DISTINCT window_ms, key_bytes FROM {refused}

-- name: results_exist
SELECT EXISTS (SELECT 1 FROM {table})

-- name: rows_without_offsets
SELECT EXISTS (SELECT 1 FROM {table})
    AND NOT EXISTS (SELECT 1 FROM skewless_offsets WHERE pipeline = %s AND stage = %s)

-- name: window_delete
DELETE FROM {table} WHERE window_start = %s

-- name: windows_select
WITH RECURSIVE _steps (window_start, number) AS (
    SELECT MIN(window_start), 1 FROM {table} WHERE window_start >= %s
    UNION ALL
    SELECT (SELECT MIN({table}.window_start) FROM {table} WHERE {table}.window_start > _steps.window_start), number + 1
    FROM _steps
    WHERE window_start IS NOT NULL AND number < 500
)
SELECT {window_start_ms}, (
    SELECT {window_end_ms} FROM {table} WHERE {table}.window_start = _steps.window_start ORDER BY key_id LIMIT 1
)
FROM _steps
WHERE window_start IS NOT NULL
ORDER BY window_start

-- name: page_select
SELECT key_id, {window_start_ms}, {window_end_ms}, {other_columns}
FROM {table}
WHERE window_start >= %s AND (window_start, key_id) > (%s, %s)
ORDER BY window_start, key_id
LIMIT %s

-- name: upsert
INSERT INTO {table} ({columns}) {rows}
ON CONFLICT (window_start, key_id) DO UPDATE
SET {assignments}
WHERE excluded.revision >= {table}.revision

-- name: add
INSERT INTO {table} ({columns}) {rows}
ON CONFLICT (window_start, key_id) DO UPDATE
SET {additions}

-- name: offsets
CREATE TABLE IF NOT EXISTS skewless_offsets (
    pipeline {type_name} NOT NULL,
    stage {type_name} NOT NULL,
    topic {type_name} NOT NULL,
    "partition" {type_number} NOT NULL,
    cluster_id {type_name} NOT NULL,
    next_offset {type_integer} NOT NULL,
    checkpoint {type_text} NOT NULL,
    state_schema {type_text} NOT NULL,
    leader_epoch {type_number},
    table_name {type_name},
    updated_at {type_time} NOT NULL,
    PRIMARY KEY (pipeline, stage, topic, "partition")
){keyed_table_options}

-- name: table
CREATE TABLE IF NOT EXISTS {table} (
    window_start {type_time} NOT NULL,
    key_id {type_id} NOT NULL,
    window_end {type_time} NOT NULL,
    "key" {type_text} NOT NULL,
{result_definitions}
    revision {type_integer} NOT NULL,
    PRIMARY KEY (window_start, key_id){index_in_table}
){keyed_table_options};
{index_of_table}CREATE TABLE IF NOT EXISTS {refused} (
    window_ms {type_integer},
    key_bytes {type_bytes} NOT NULL,
    reason {type_text} NOT NULL,
    record {type_bytes} NOT NULL,
    topic {type_name} NOT NULL,
    "partition" {type_number} NOT NULL,
    "offset" {type_integer} NOT NULL,
    refused_at {type_time} NOT NULL
){table_options}

-- name: view
{create_view} {view} AS
SELECT window_start, window_end, "key", {view_columns}, revision FROM {table}
