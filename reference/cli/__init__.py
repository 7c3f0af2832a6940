"""`omniref`: the engine for people and scripts.

Commands that only read open the graph read-only. Answers go to stdout, as text or with `--json` as one JSON value;
progress and errors go to stderr. Everything that touches the engine is imported by the command that needs it, so that
`version` and `--help` answer at once.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the `omniref` script."""
    from reference.cli.app import run

    sys.exit(run(sys.argv[1:]))
