"""Stores results in SQL databases: PostgreSQL, MariaDB/MySQL and SQLite, with the offsets of their input."""
