CREATE TABLE IF NOT EXISTS skewless_migrations (
    number integer PRIMARY KEY,
    applied_at datetime(3) NOT NULL
) ENGINE = InnoDB;
