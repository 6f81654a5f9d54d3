"""Version of the package."""

VERSION = "0.6.5-dev"
