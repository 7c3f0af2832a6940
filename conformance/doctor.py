"""`touchstone doctor`: which stores and tools are here, and what to do about those that are not.

With `--stores` each store that is here is started, proves its conditional writes, and is asked what stores answer
differently.
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.consoles import make_console
from conformance.runner.session import without_aws_variables
from fixtures.stores.catalog import STORES, StoreKind, StoreUnavailable, running
from fixtures.stores.ledger import Entry, compared

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ANSWER_TIMEOUT_SECONDS: Final = 20
_PACKAGES: Final = ("pylance", "pyarrow", "obstore", "hypothesis", "pytest", "pytest-xdist", "moto", "pyspark")
_INSTALLED_BY: Final = {
    "hypothesis": "test",
    "pytest": "test",
    "pytest-xdist": "test",
    "moto": "servers",
    "pyspark": "spark",
}


@dataclass(frozen=True)
class Finding:
    """One thing that a run may need: what is here, or what to do."""

    kind: str
    name: str
    here: bool
    words: str
    # What is set up, and is somewhere else, may still fail: nobody has tried it.
    was_tried: bool = True


def findings() -> Iterator[Finding]:
    """Everything that is looked for, in the order in which it is shown."""
    yield Finding("tool", "python", True, platform.python_version())
    for name in _PACKAGES:
        yield _package(name)
    for kind in STORES.values():
        yield _store(kind)
    yield _command("node", ["node", "--version"], "runs the example driver in fixtures/drivers/node: install nodejs")
    yield _command("java", ["java", "-version"], "runs Spark: install a Java runtime, 17 or newer")
    yield _command(
        "docker",
        ["docker", "version", "--format", "{{.Server.Version}}"],
        "runs MinIO in a container: install docker.io and start dockerd",
    )
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    words = (
        browser.rpartition("/")[2] if browser else "tests of the report in a real browser are skipped: install chromium"
    )
    yield Finding("tool", "browser", browser is not None, words)


def _store(kind: StoreKind) -> Finding:
    reason = kind.missing()
    if reason is not None:
        return Finding("store", kind.name, False, reason)
    if kind.is_elsewhere:
        words = f"set up, and not tried: touchstone doctor --stores tries it: {kind.description}"
        return Finding("store", kind.name, True, words, was_tried=False)
    return Finding("store", kind.name, True, f"ok: {kind.description}")


def _package(name: str) -> Finding:
    try:
        return Finding("package", name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        extra = _INSTALLED_BY.get(name)
        wanted = "." if extra is None else f".[{extra}]"
        return Finding("package", name, False, f"pip install '{wanted}' in a checkout of this project")


def _command(name: str, command: list[str], otherwise: str) -> Finding:
    if shutil.which(command[0]) is None:
        return Finding("tool", name, False, otherwise)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Finding("tool", name, False, f"does not answer; {otherwise}")
    lines = (done.stdout or done.stderr).strip().splitlines()
    return Finding("tool", name, done.returncode == 0, lines[0] if lines and done.returncode == 0 else otherwise)


def doctor_command(
    stores: Annotated[
        bool, typer.Option("--stores", help="Start every store that is here, and say what each answers.")
    ] = False,
) -> None:
    """Say which stores and tools are here, and what to do about the missing ones."""
    console = make_console()
    if stores:
        without_aws_variables()
        show_ledgers(console)
    else:
        show(console, list(findings()))


def show_ledgers(console: Console) -> None:
    """Start each store that is here, and print whether it proves itself, and the parity ledger."""
    ledgers: dict[str, tuple[Entry, ...]] = {}
    for name, kind in STORES.items():
        try:
            with running(name) as store:
                ledgers[name] = store.ledger()
            version = kind.version()
            title = name if version is None else f"{name} {version}"
            console.print(f"[green]{escape(title)}[/]: ok, {escape(kind.description)}", highlight=False)
        except StoreUnavailable as reason:
            console.print(f"[bold yellow]{name}[/]: {escape(str(reason))}", highlight=False)
    asked = [name for name, entries in ledgers.items() if entries]
    table = Table("asked", *asked, box=None, pad_edge=False)
    for row in compared({name: ledgers[name] for name in asked}):
        table.add_row(escape(row["question"]), *(escape(row["answers"].get(name, "")) for name in asked))
    if asked:
        console.print(table)


def show(console: Console, found: list[Finding]) -> None:
    table = Table("kind", "name", "here", "version, or what to do", box=None, pad_edge=False)
    for each in found:
        here = "[bold yellow]no[/]" if not each.here else "[green]yes[/]" if each.was_tried else "[cyan]perhaps[/]"
        table.add_row(each.kind, each.name, here, escape(each.words))
    console.print(table)
    missing = list(dict.fromkeys(each.name for each in found if not each.here))
    if missing:
        console.print(
            f"missing: {', '.join(missing)}. What needs one of them is skipped, and says so.", highlight=False
        )
    else:
        console.print("nothing is missing.", highlight=False)
