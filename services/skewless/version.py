"""Version of the package."""

VERSION = "0.3.2"
