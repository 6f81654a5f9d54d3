CREATE TABLE IF NOT EXISTS skewless_migrations (
    number INTEGER PRIMARY KEY,
    applied_at TEXT NOT NULL
);
