"""How commands speak: to a terminal or a file, and about a mistake in the request."""

from __future__ import annotations

import os
import sys
from typing import Final

import typer
from rich.console import Console
from rich.markup import escape

from conformance.runner.verdict import USAGE

UNBROKEN_COLUMNS: Final = 2000


def make_console() -> Console:
    """Lines are broken for a terminal, and left whole for a file or a pipe, where somebody searches them."""
    is_sized = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_sized else UNBROKEN_COLUMNS)


def usage(message: str) -> typer.Exit:
    """A mistake in the request: said in words on stderr, exit code 2."""
    Console(stderr=True).print(f"[bold red]error[/]: {escape(message)}", highlight=False)
    return typer.Exit(USAGE)
