CREATE VIEW IF NOT EXISTS {view} AS
SELECT window_start, window_end, "key", {view_columns}, revision FROM {table};
