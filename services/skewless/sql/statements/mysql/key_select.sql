SELECT column_name FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s AND index_name = 'PRIMARY'
