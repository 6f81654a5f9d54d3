"""The topics as an API: an AsyncAPI 3 document, made from the topology and the types of the records."""
