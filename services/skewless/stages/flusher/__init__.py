"""Stage flusher: adds partial results to the rows of a table."""
