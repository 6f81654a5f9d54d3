"""Runs a pipeline over a list of records, without Kafka, so that a test of a pipeline file takes milliseconds.

The steps are those of the stages. They run one after the other in this process, and give the same outcome every time.
"""

from skewless.testing.run import InvalidRecord, Outcome, Record, run

__all__ = ["InvalidRecord", "Outcome", "Record", "run"]
