"""Version of the package."""

VERSION = "0.5.1-dev"
