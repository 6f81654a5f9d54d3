"""Sends records through a running pipeline and checks their counts in the results; `helm test` runs it.

The keys are unique to each run, so that they differ from all other keys in a topic that is in use.
"""
