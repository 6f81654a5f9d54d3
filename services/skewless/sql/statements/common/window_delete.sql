DELETE FROM {table} WHERE window_start = %s
