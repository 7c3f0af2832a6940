"""How commands speak: to a terminal or a file, and about a mistake in the request."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
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
    Console(stderr=True).print(f"[bold red]error[/]: {escape(message)}", highlight=False, soft_wrap=True)
    return typer.Exit(USAGE)


def check_folder(folder: Path, what: str) -> None:
    """Refuse a folder that cannot be written to, before anybody has waited for what is to be in it."""
    try:
        for place in (folder, *folder.parents):
            if place.is_file():
                raise usage(f"{what} cannot be written to {folder}: {place} is a file, not a folder")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise usage(f"{what} cannot be written to {folder}: {error.strerror}") from None
