"""The mirror: copies a topic of the pipeline to another Kafka cluster."""
