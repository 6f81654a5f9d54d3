"""Version of the package."""

VERSION = "0.4.1-dev"
