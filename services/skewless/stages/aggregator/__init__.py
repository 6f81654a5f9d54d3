"""The aggregator stage: merges partials into windows and emits the results."""
