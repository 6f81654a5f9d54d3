"""`skewless demo`: compares groupings on a live stream, and counts a data set, whose counts it checks."""
