"""A page for the browser that shows pipelines live, beside each other: loads of the workers, figures and tables."""
