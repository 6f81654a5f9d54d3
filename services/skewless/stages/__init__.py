"""The stages of the pipeline, in data order: splitter, router, worker, aggregator, observer."""
