"""Deltas of panes in, how even the load of the workers is out."""
