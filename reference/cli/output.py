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

from reference.errors import StorageError

EXIT_CODES = {"internal": 1, "storage": 1, "bad_request": 2, "not_found": 3, "conflict": 4, "outcome_pending": 5}
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
# Variables that hold secrets, and how long one must be: what is shorter is a word that may mean anything.
SECRETS = {"AWS_SECRET_ACCESS_KEY": 8, "AWS_SESSION_TOKEN": 8, "AWS_ACCESS_KEY_ID": 16}
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
    """Write to stdout. What fails while the parts are made is not the fault of stdout."""
    for part in parts:
        _put(part)
    _put(b"", flush=True)


def _put(data: bytes, *, flush: bool = False) -> None:
    if sys.stdout is None:
        raise StorageError("stdout is closed", code="stdout")
    try:
        sys.stdout.buffer.write(data)
        if flush:
            sys.stdout.buffer.flush()
    except OSError as error:
        raise stdout_failed(error) from None


def stdout_failed(error: OSError) -> Exception:
    """Give up stdout, with what is still in its buffer. A reader that went away (`| head`) is worth no word."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return typer.Exit(EXIT_PIPE_CLOSED)
    return StorageError(f"stdout cannot be written: {error.strerror or error}", code="stdout")


def note(text: str) -> None:
    """Say something to the person at the terminal that is no part of the answer."""
    if sys.stderr is not None:
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
    """Print an error and return the exit code of its kind. If stdout is of no use, people get it instead."""
    error = scrubbed(error)
    if as_json and error["code"] != "stdout":
        try:
            write(json_line({"error": error}))
            return EXIT_CODES[error["kind"]]
        except StorageError:
            pass
    excerpt = error["code"] in EXCERPT_CODES
    lines = error["message"].split("\n") if excerpt else [" ".join(error["message"].split())]
    lines[0] = f"error [{error['kind']}/{error['code']}]: {lines[0]}"
    if "hint" in error:
        lines = [*lines, f"hint: {error['hint']}"] if excerpt else [f"{lines[0]} ({error['hint']})"]
    for line in lines:
        note(line)
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
        print(_without_secrets("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if type(error).__name__ == "FailpointMisuse":  # Its module cannot be imported then: it reads the environment.
        return {"kind": "bad_request", "code": "failpoint", "message": str(error)}
    message = f"{type(error).__name__}: {error}"
    hint = "nobody foresaw this; OMNIREF_DEBUG=1 shows where it came from"
    return {"kind": "internal", "code": "unexpected", "message": message, "hint": hint}


def scrubbed(error: dict[str, Any]) -> dict[str, Any]:
    """An error without the credentials of this process, should a library have put them into its message."""
    return {name: each if name in ("kind", "code") else _without_secrets(each) for name, each in error.items()}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(each) for each in value]
    if isinstance(value, str):
        for name, least in SECRETS.items():
            secret = os.environ.get(name, "")
            value = value.replace(secret, "***") if len(secret) >= least else value
    return value


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show that something goes on, if a person is watching; yields a function that says how much is done."""
    if sys.stderr is None or not sys.stderr.isatty():
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
