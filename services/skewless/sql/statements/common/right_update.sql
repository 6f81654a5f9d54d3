UPDATE {table} SET {column} = {column} WHERE 1 = 0
