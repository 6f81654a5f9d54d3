SELECT name FROM pragma_table_info(%s) WHERE pk > 0
