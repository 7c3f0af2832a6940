"""`python -m conformance` is `touchstone`."""

from conformance.cli import main

main()
