"""What a sweep, a race, a history or a storm leaves for programs: a file of its own name in the folder of a report.

    report/sweep.json    the command, how it ended, what was counted, and what was wrong, with its requirements

Whatever ends the command, the file has the exit code that its process ends with, all that was found until then, and
whether that is the whole of it: a store that dies in the middle takes nothing back that was found before.

`python -m conformance.verdicts --faults` makes a part of an engine's page of it. Secrets stay out of it.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self

import typer
from jsonschema import Draft202012Validator

from conformance.consoles import check_folder, usage
from conformance.runner.redaction import value_without_secrets, without_secrets
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, INTERRUPTED, NOTHING_TESTED
from conformance.traces import write_whole

DISTRIBUTION: Final = "omnigraph-touchstone"
ENDS: Final[Mapping[int, str]] = {
    CONFORMS: "holds",
    FAILS: "wrong",
    COULD_NOT_RUN: "could not run",
    NOTHING_TESTED: "nothing was tried",
    INTERRUPTED: "interrupted",
}
_MESSAGE_LENGTH_MAX: Final = 300
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_WRONG: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["where", "broke", "because"],
    "properties": {"where": _TEXT, "broke": {"type": "array", "items": _TEXT, "minItems": 1}, "because": _TEXT},
}
_FIELDS: Final[Mapping[str, Any]] = {
    "format": {"const": 1},
    "suite_version": _TEXT,
    "instrument": {"enum": ["sweep", "race", "history", "storm"]},
    "command": _TEXT,
    "engine": _TEXT,
    "peer": {"type": ["string", "null"]},
    "store": _TEXT,
    "ended": _TEXT,
    "exit_code": _NUMBER,
    "whole": {"type": "boolean"},
    "seconds": {"type": "number", "minimum": 0},
    "tried": _NUMBER,
    "noun": _TEXT,
    "counts": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _NUMBER}},
    "wrong": {"type": "array", "items": _WRONG},
}
_SHAPE: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": list(_FIELDS),
    "properties": _FIELDS,
    # What could not run, tried nothing or was interrupted did not come to its end.
    "if": {"properties": {"whole": {"const": True}}},
    "then": {"properties": {"exit_code": {"enum": [CONFORMS, FAILS]}}},
}
Counts = Mapping[str, Mapping[str, int]]


def fault_report_option(name: str) -> Any:
    return typer.Option("--report", help=f"A folder for {name}.json: what was counted, and what was wrong.")


SweepReport = Annotated[Path | None, fault_report_option("sweep")]
RaceReport = Annotated[
    Path | None,
    typer.Option(
        "--report", help="A folder for race.json, or of a history history.json: what was counted, and what was wrong."
    ),
]
StormReport = Annotated[Path | None, fault_report_option("storm")]


@dataclass(frozen=True)
class Wrong:
    """One thing that was wrong: where, which requirements it broke, and because of what."""

    where: str
    broke: tuple[str, ...]
    because: str


@dataclass(frozen=True)
class SoFar:
    """What a command has found until now."""

    tried: int = 0
    counts: Counts = field(default_factory=dict)
    wrong: Sequence[Wrong] = ()


@dataclass
class FaultReport:
    """The report of one command, written when the block ends, whatever ends it. Without a folder nothing is kept.

    with FaultReport(folder, "sweep", …) as kept:
        kept.so_far = lambda: SoFar(len(found), …)
        ...
        raise typer.Exit(code)

    `whole` is for the command to say, when it has come to its end.
    """

    folder: Path | None
    instrument: str
    engine: str
    peer: str | None
    store: str
    # The rest of the command line, without what is left as it is by default.
    options: Sequence[str] = ()
    noun: str = "cells"
    so_far: Callable[[], SoFar] = SoFar
    whole: bool = False
    began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        if self.folder is not None:
            check_folder(self.folder, "the report")
            self._write(self.folder, COULD_NOT_RUN)  # All that there is to say if the process is killed.
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.folder is not None:
            self._write(self.folder, exit_code_of(error))

    def _write(self, folder: Path, code: int) -> None:
        found = self.so_far()
        # A pipe that nobody reads any more ends a command with 1 as well.
        ended = None if code == FAILS and not found.wrong else ENDS.get(code)
        body = {
            "format": 1,
            "suite_version": importlib.metadata.version(DISTRIBUTION),
            "instrument": self.instrument,
            "command": self._command(),
            "engine": without_secrets(self.engine),
            "peer": None if self.peer is None else without_secrets(self.peer),
            "store": self.store,
            "ended": ended or ENDS[COULD_NOT_RUN],
            "exit_code": code,
            "whole": self.whole and code in (CONFORMS, FAILS),
            "seconds": round(time.monotonic() - self.began, 1),
            "tried": found.tried,
            "noun": self.noun,
            "counts": {name: dict(row) for name, row in found.counts.items()},
            "wrong": [value_without_secrets({**vars(each), "broke": list(each.broke)}) for each in found.wrong],
        }
        path = folder / f"{self.instrument}.json"
        try:
            write_whole(path, json.dumps(body, indent=1) + "\n")
        except OSError as error:
            raise usage(f"the report cannot be written to {path}: {error.strerror}") from None

    def _command(self) -> str:
        name = "race" if self.instrument == "history" else self.instrument
        words = ["touchstone", name, "--engine", without_secrets(self.engine)]
        words += [] if self.peer is None else ["--peer", without_secrets(self.peer)]
        return shlex.join([*words, "--store", self.store, *self.options])


def exit_code_of(error: BaseException | None) -> int:
    """The exit code of a process whose command ends so. What nobody expected is a mistake of the kit, as in `main`."""
    match error:
        case None:
            return CONFORMS
        case typer.Exit():
            return error.exit_code
        case KeyboardInterrupt():
            return INTERRUPTED
        case SystemExit(code=int(code)):
            return code
    return COULD_NOT_RUN


class FaultReportRefused(ValueError):
    """A file that is no report of faults: which one, and what is wrong with it."""


def read_fault_report(path: Path) -> dict[str, Any]:
    """What a command has written, checked for everything that is read of it."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FaultReportRefused(f"{path}: cannot be read as the report of a sweep, race or storm: {error}") from None
    errors = sorted(Draft202012Validator(_SHAPE).iter_errors(body), key=lambda error: list(map(str, error.path)))
    if errors:
        place = "".join(f"[{step!r}]" for step in errors[0].absolute_path)
        raise FaultReportRefused(f"{path}: report{place}: {errors[0].message[:_MESSAGE_LENGTH_MAX]}")
    checked: dict[str, Any] = body
    return checked
