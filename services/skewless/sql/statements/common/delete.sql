DELETE FROM {table} WHERE window_start = %s AND key_id = %s
