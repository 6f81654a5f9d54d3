"""Measures the records of a topic: format, keys, times, sizes, and the load balance of the groupings."""
