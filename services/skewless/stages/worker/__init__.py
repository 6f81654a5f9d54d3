"""The worker stage: aggregates tuples into partials by pane and key."""
