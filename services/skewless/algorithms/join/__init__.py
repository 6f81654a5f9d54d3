"""Windowed join of two logs by id: at most one right record per left record."""
