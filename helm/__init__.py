"""The Helm chart, and the generator of its files that are derived from the code."""
