"""The Helm chart, and what makes the parts of it that come from the code."""
