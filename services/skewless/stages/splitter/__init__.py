"""The splitter stage: converts records of the source topic to tuples."""
