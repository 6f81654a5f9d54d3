"""Generates the chart's files that are derived from the code: topology, schema of the values, dashboards and rules."""
