"""What the commands print: answers on stdout, errors and progress on stderr, and never anybody's credentials."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

EXIT_CODES = {"internal": 1, "storage": 1, "bad_request": 2, "not_found": 3, "conflict": 4, "outcome_pending": 5}
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# Errors whose message is an excerpt with a caret below the mistake.
EXCERPT_CODES = ("schema_syntax", "schema_invalid")


def show(body: Any, lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """Print an answer: the JSON value itself, or lines for people."""
    if as_json:
        write(json_line(body))
    else:
        write("".join(f"{printable(line)}\n" for line in lines()).encode("utf-8", "backslashreplace"))


def json_line(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def write(data: bytes) -> None:
    write_all([data])


def write_all(parts: Iterable[bytes]) -> None:
    """Write to stdout. A reader that went away (`| head`) ends the command without a word."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_PIPE_CLOSED) from None


def note(text: str) -> None:
    """Say something to the person at the terminal that is no part of the answer."""
    print(printable(text), file=sys.stderr)


def table(rows: Iterable[Mapping[str, Any]], *fields: str) -> list[str]:
    """The named fields of JSON objects under a heading, each column as wide as its widest cell."""
    cells = [[name.replace("_", " ") for name in fields], *([_cell(row[name]) for name in fields] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(" ".join(map(str, each.values())) for each in value) or "-"
    return "-" if value is None or value == "" else printable(str(value))


def printable(text: str) -> str:
    """Text that cannot talk to the terminal: what a graph holds is shown and not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def report(error: dict[str, Any], *, as_json: bool) -> int:
    """Print an error and return the exit code of its kind."""
    if as_json:
        write(scrubbed(json_line({"error": error}).decode()).encode())
        return EXIT_CODES[error["kind"]]
    excerpt = error["code"] in EXCERPT_CODES
    lines = error["message"].split("\n") if excerpt else [" ".join(error["message"].split())]
    lines[0] = f"error [{error['kind']}/{error['code']}]: {lines[0]}"
    if "hint" in error:
        lines = [*lines, f"hint: {error['hint']}"] if excerpt else [f"{lines[0]} ({error['hint']})"]
    for line in lines:
        note(scrubbed(line))
    return EXIT_CODES[error["kind"]]


def engine_version() -> str:
    """The installed version; a source tree that nobody installed has none."""
    try:
        return version("omnigraph-touchstone")
    except PackageNotFoundError:
        return "0.0.0+source"


def unexpected(error: Exception) -> dict[str, Any]:
    """An error that no part of the engine has a name for, as `OmniError.to_json` would put it."""
    if os.environ.get("OMNIREF_DEBUG") == "1":
        print(scrubbed("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    message = scrubbed(f"{type(error).__name__}: {error}")
    hint = "nobody foresaw this; OMNIREF_DEBUG=1 shows where it came from"
    return {"kind": "internal", "code": "unexpected", "message": message, "hint": hint}


def scrubbed(text: str) -> str:
    """Without the credentials of this process, should a library have put them into its message."""
    for secret in filter(None, (os.environ.get(name) for name in SECRETS)):
        text = text.replace(secret, "***")
    return text


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show that something goes on, if a person is watching; yields a function that says how much is done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counting = () if total is None else (BarColumn(), MofNCompleteColumn())
    text = TextColumn("{task.description}", markup=False)
    console = Console(stderr=True, markup=False)
    with Progress(SpinnerColumn(), text, *counting, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(printable(what), total=total)
        yield lambda done: bar.update(task, completed=done)
