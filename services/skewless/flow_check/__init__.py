"""Sends records of its own through a running pipeline and checks the counts that come out: what `helm test` runs.

Their keys are new with every run, so that they can be told from all others in a topic that is in use.
"""
