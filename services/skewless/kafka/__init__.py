"""Thin layer over confluent-kafka: settings, clients, consumers, producers and topics. Independent of the stages."""
