"""Tuples in, deltas of panes by key out."""
