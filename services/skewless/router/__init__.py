"""Tuples in, a worker partition for each of them out."""
