"""Deltas of panes in, windows by key out."""
