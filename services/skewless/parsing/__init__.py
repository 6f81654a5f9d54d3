"""Converts source records to tuples."""
