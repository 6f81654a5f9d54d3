"""Version of the package."""

VERSION = "0.5.0"
