"""Splitter: records of the source topic become tuples."""
