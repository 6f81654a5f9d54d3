SELECT MIN(window_start) FROM {table}
