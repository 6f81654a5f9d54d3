"""Settings of a pipeline: their model, how they are loaded and checked, and what is derived from them."""
