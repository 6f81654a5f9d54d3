DELETE FROM {refused}
