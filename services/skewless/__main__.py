"""`python -m skewless` is `skewless`."""

from skewless.cli.main import main

main(prog_name="skewless")
