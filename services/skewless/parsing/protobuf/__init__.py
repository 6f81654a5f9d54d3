"""Reads fields of records in Protobuf's encoding, all records of a batch in one compiled loop."""
