"""Runs the step of a stage on partitions."""
