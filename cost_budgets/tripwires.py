"""Tripwires: costly engines, and the budgets that each of them must break, and no other.

    python -m cost_budgets.tripwires [NAME ...]

measures every costly engine, or those that are named, and says for each which budgets it broke. A budget names the
engines that must break it; an engine that breaks a budget which does not name it is as wrong as one that breaks none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

import typer

from conformance.consoles import make_console, usage
from conformance.runner.session import without_aws_variables
from conformance.runner.verdict import CONFORMS, FAILS
from cost_budgets.budgets import Budget, read_budgets
from cost_budgets.judging import judge
from cost_budgets.measuring import PAGE_KEYS, Profile, counting, measure
from failpoints.command_ends import EXIT_INTERRUPTED, JobsOption, default_jobs, in_words
from failpoints.workshop import Bench, SweepBroken, swept_in_processes
from fixtures.mutants import MUTANTS
from fixtures.stores.catalog import Store

# A costly engine is over its budget, or on its way there, at few depths already.
TRIPPED: Final = Profile((4, 14), (4, 12), (4, 24), branches=(2, 6), payloads=(2, 6), loads=(16, 128), tables=(6, 24))
# Some need a history to be seen, and several points on each side of it.
DEEP: Final = Profile((10, 40, 110, 137), merges=(), crashes=(), branches=())
_DEEP: Final = ("asks-the-manifest-more-and-more",)
# To watch for late work takes a second for each operation: only who works late is watched.
_LATE: Final = ("works-long-after-the-answer", "works-late-once-it-has-optimized")
# What these keep to themselves no other process sees: what a new process needs of it fails there, and is not counted.
_UNSEEN: Final = ("writes-behind",)
COSTLY: Final = tuple(name for name, each in MUTANTS.items() if "cost" in each.caught_by)


@dataclass(frozen=True)
class Tripped:
    """One costly engine: the operations whose budget it broke, and those whose budgets name it."""

    engine: str
    broken: frozenset[str]
    named: frozenset[str]
    accuses: ClassVar[bool] = False

    @property
    def missed(self) -> frozenset[str]:
        """Budgets that name the engine and were kept."""
        return self.named - self.broken

    @property
    def unrelated(self) -> frozenset[str]:
        """Budgets that were broken and do not name it."""
        return self.broken - self.named


def trip(
    store: Store,
    name: str,
    *,
    budgets: Mapping[str, Budget] | None = None,
    profile: Profile | None = None,
    operations: Iterable[str] | None = None,
) -> Tripped:
    """Measure a costly engine, and hold it against all budgets, or against those of some operations."""
    known = read_budgets() if budgets is None else budgets
    chosen = list(known if operations is None else operations)
    usual = DEEP if name in _DEEP else TRIPPED
    with counting(store, f"mutant:{name}") as bench:
        measured = measure(bench, store, replace(profile or usual, watched=name in _LATE), names=chosen)
    named = frozenset(each for each in chosen if name in known[each].tripwires)
    if measured.failed and (name not in _UNSEEN or named & measured.failed.keys()):
        raise SweepBroken(f"{name}: {measured.failed}")
    broken = frozenset(line.operation for line in judge(measured, known) if line.verdict != "ok")
    return Tripped(name, broken, named)


def tripped_one(bench: Bench, store: Store, name: str) -> Generator[Tripped, None, None]:
    """A costly engine in whatever process. It has a bench of its own: the one that is there is another engine's."""
    yield trip(store, name)


def main(
    engine: Annotated[
        list[str] | None, typer.Argument(help="Names of costly engines; by default all.", metavar="[NAME]...")
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Measure costly engines on moto, and say which budgets each of them broke.

    Exit codes: 0 each broke the budgets that name it and no other, 1 one did not, 2 usage, 3 the store or an engine
    broke down, 4 moto is not here.
    """
    unknown = [name for name in engine or () if name not in COSTLY]
    if unknown:
        raise usage(f"there is no costly engine '{unknown[0]}'; there are {', '.join(COSTLY)}")
    without_aws_variables()
    console, wrong = make_console(), False
    names = list(dict.fromkeys(engine or COSTLY))
    how: dict[str, Any] = {"timeout_seconds": 120.0, "page_keys": PAGE_KEYS}
    processes = min(jobs or default_jobs(), len(names))
    with (
        in_words(console) as ended,
        closing(
            swept_in_processes(tripped_one, names, engine="reference", store="moto", jobs=processes, **how)
        ) as all_,
    ):
        for tripped in all_:
            wrong |= bool(tripped.missed or tripped.unrelated or not tripped.broken)
            console.print(f"{tripped.engine}: broke {', '.join(sorted(tripped.broken)) or 'nothing'}", soft_wrap=True)
            if tripped.missed:
                console.print(f"  kept, and names it: {', '.join(sorted(tripped.missed))}", soft_wrap=True)
            if tripped.unrelated:
                console.print(f"  broken, and does not name it: {', '.join(sorted(tripped.unrelated))}", soft_wrap=True)
    if ended.early:
        raise typer.Exit(EXIT_INTERRUPTED)
    raise typer.Exit(FAILS if wrong else CONFORMS)


if __name__ == "__main__":
    typer.run(main)
