"""`python -m benchmarks.cluster`: the demonstration, as `make cluster` runs it."""

import sys

from benchmarks.cluster.demonstration import main

if __name__ == "__main__":
    sys.exit(main())
