CREATE TABLE IF NOT EXISTS skewless_migrations (
    number integer PRIMARY KEY,
    applied_at timestamptz NOT NULL
);
