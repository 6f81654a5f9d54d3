INSERT INTO {table} ({columns}) VALUES ({parameters}) ON DUPLICATE KEY UPDATE {additions}
