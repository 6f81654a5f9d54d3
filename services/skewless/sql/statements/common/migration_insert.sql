INSERT INTO skewless_migrations (number, applied_at) VALUES (%s, CURRENT_TIMESTAMP)
