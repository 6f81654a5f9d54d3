"""The router stage: chooses a worker partition for each tuple."""
