"""Schema registries: their settings, a client, and the identification of a record's schema."""
