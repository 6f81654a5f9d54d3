"""`python -m skewless` is `skewless`."""

from skewless.cli import main

main(prog_name="skewless")
