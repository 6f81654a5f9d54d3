"""The Python API: pipelines as objects. It calls the functions that the commands call. `skewless` exports its names."""
