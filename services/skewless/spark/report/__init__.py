"""Reports: one HTML file each, with everything inside, readable in light and dark and without a network."""
