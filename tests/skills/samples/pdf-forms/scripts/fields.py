#!/usr/bin/env python3
"""Print the fields of a PDF form."""

import sys

print(f"{sys.argv[1:]}")  # noqa: T201
