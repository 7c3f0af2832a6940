"""`python -m reference.cli` is `omniref`."""

from reference.cli import main

main()
