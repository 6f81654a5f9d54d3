SELECT {column} FROM {table} WHERE 1 = 0
