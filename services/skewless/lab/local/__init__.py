"""A real Kafka on this machine: its Java, its jars, its process, and child processes that end with their parent."""
