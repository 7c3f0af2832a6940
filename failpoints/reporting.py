"""What a sweep, a race, a history or a storm leaves for programs: a file of its own name in the folder of a report.

    report/sweep.json    the command, how it ended, what was counted, and what was wrong, with its requirements

`python -m conformance.verdicts --faults` makes a part of an engine's page of it. Secrets stay out of it.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from jsonschema import Draft202012Validator

from conformance.consoles import check_folder, usage
from conformance.runner.redaction import value_without_secrets, without_secrets
from conformance.runner.verdict import COULD_NOT_RUN, FAILS, INTERRUPTED, NOTHING_TESTED

DISTRIBUTION: Final = "omnigraph-touchstone"
ENDS: Final[Mapping[int, str]] = {
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
    "required": ["where", "broke", "because"],
    "properties": {"where": _TEXT, "broke": {"type": "array", "items": _TEXT, "minItems": 1}, "because": _TEXT},
}
_SHAPE: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": [
        "format",
        "instrument",
        "command",
        "engine",
        "store",
        "ended",
        "tried",
        "noun",
        "seconds",
        "counts",
        "wrong",
    ],
    "properties": {
        "format": {"const": 1},
        "instrument": {"enum": ["sweep", "race", "history", "storm"]},
        "command": _TEXT,
        "engine": _TEXT,
        "peer": {"type": ["string", "null"]},
        "store": _TEXT,
        "ended": _TEXT,
        "tried": _NUMBER,
        "noun": _TEXT,
        "seconds": {"type": "number", "minimum": 0},
        "counts": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _NUMBER}},
        "wrong": {"type": "array", "items": _WRONG},
    },
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


@dataclass
class FaultReport:
    """The report of one command while it runs. Without a folder nothing is kept."""

    folder: Path | None
    instrument: str
    engine: str
    peer: str | None
    store: str
    # The rest of the command line, without what is left as it is by default.
    options: Sequence[str] = ()
    noun: str = "cells"
    wrong: list[Wrong] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.folder is not None:
            check_folder(self.folder, "the report")
            self.write(COULD_NOT_RUN, tried=0, counts={}, seconds=0.0)  # Until there is more to say.

    @property
    def path(self) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.instrument}.json"

    def write(self, code: int, *, tried: int, counts: Counts, seconds: float) -> None:
        """How it ended: with this exit code, after so many trials."""
        if self.folder is None:
            return
        body = {
            "format": 1,
            "suite_version": importlib.metadata.version(DISTRIBUTION),
            "instrument": self.instrument,
            "command": self._command(),
            "engine": without_secrets(self.engine),
            "peer": None if self.peer is None else without_secrets(self.peer),
            "store": self.store,
            "ended": ENDS.get(code, "holds"),
            "exit_code": code,
            "seconds": round(seconds, 1),
            "tried": tried,
            "noun": self.noun,
            "counts": {name: dict(row) for name, row in counts.items()},
            "wrong": [value_without_secrets({**vars(each), "broke": list(each.broke)}) for each in self.wrong],
        }
        try:
            self.path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise usage(f"the report cannot be written to {self.path}: {error.strerror}") from None

    def _command(self) -> str:
        name = "race" if self.instrument == "history" else self.instrument
        words = ["touchstone", name, "--engine", without_secrets(self.engine)]
        words += [] if self.peer is None else ["--peer", without_secrets(self.peer)]
        return shlex.join([*words, "--store", self.store, *self.options])


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
