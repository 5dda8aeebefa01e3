"""The version of Exuvia."""

VERSION = "0.1.0"
