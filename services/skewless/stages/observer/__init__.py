"""The observer stage: measures the distribution of the load over the workers from partials."""
