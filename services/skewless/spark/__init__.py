"""Spark over the same topics: DataFrames in, DataFrames out."""
