"""The sink stage: stores results in a table of a database."""
