"""What `cost` and `bench` share: several stores in turn, one exit code for all of them, places that can be written to.

A store that is not there is skipped with the reason, and one that breaks down is said to have; the others are measured
all the same. The exit code is that of the store with which it went worst.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.audit.datasets import DatasetMissing, DatasetMoved, DatasetUnreadable
from conformance.consoles import check_folder, usage
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED
from failpoints.gate import GateError
from failpoints.workshop import SweepBroken
from fixtures.forge import ForgeError

# With what an engine, its adapter or a store can end a measurement.
BROKEN: Final = (
    *(AdapterFault, Unsupported, EngineError, SweepBroken, GateError, ForgeError),
    *(DatasetMissing, DatasetUnreadable, DatasetMoved),
)
_WORST_FIRST: Final = (COULD_NOT_RUN, FAILS, NOTHING_TESTED, CONFORMS)


def names_of(given: Sequence[str] | None, usual: str) -> list[str]:
    """The stores that were asked for, each once; several may stand in one word, with commas between them."""
    return list(dict.fromkeys(name for each in given or [usual] for name in each.split(",")))


def worst_of(codes: Iterable[int]) -> int:
    """The exit code of them all: what could not run comes first, then what is broken, then what was not measured."""
    return min(codes, key=_WORST_FIRST.index, default=NOTHING_TESTED)


def check_file(file: Path) -> None:
    """The same for a file that something is added to."""
    try:
        if file.is_dir():
            raise usage(f"{file} is a folder, not a file")
        is_there = file.exists()
    except OSError as error:
        raise usage(f"{file} cannot be written: {error.strerror}") from None
    if is_there and not os.access(file, os.W_OK):
        raise usage(f"{file} cannot be written")
    if not is_there:
        check_folder(file.parent, file.name)
