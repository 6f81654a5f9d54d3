"""`skewless demo`: runs one data set through the whole pipeline, once per grouping, and checks every count."""
