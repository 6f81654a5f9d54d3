"""`skewless demo`: one data set through the whole pipeline, once per grouping, and a check that nothing is missing."""
