"""Producers of output records."""
