"""`omniref`: the engine for people and scripts.

Commands that only read open the graph read-only. Answers go to stdout, as text or with `--json` as one JSON value;
progress and errors go to stderr. Everything that touches the engine is imported by the command that needs it, so that
`version` and `--help` answer at once.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point of the `omniref` script."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next file that is opened, perhaps one of a table, would be stdout to some library.
            os.open(os.devnull, os.O_RDWR)
    try:
        from reference.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
