CREATE OR REPLACE VIEW {view} AS
SELECT window_start, window_end, "key", {view_columns}, revision FROM {table};
