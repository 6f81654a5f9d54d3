INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0
