"""`touchstone sweep --failpoints`: the crash matrix of named failpoints, for an engine that obeys them, on any store.

An engine that does not declare the capability has nothing to try here, which is no fault of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from conformance.adapters import Unsupported
from failpoints.command_ends import Refusals, in_words, progress_line, say_rate, verdict_of
from failpoints.matrix import SUBJECTS, Crew, SpotResult, Subject, matrix, subjects_called, sweep
from failpoints.nursery import quickened
from failpoints.reporting import FaultReport, SoFar, Wrong
from failpoints.workshop import Refused, blaming, vouched
from failpoints.writers import GROUPS
from fixtures.stores.catalog import running


def named_subjects(names: Sequence[str]) -> list[Subject]:
    """The subjects that names stand for: those of the matrix, and groups of writers. `UnknownSubject` for another."""
    if "all" in names:
        return list(SUBJECTS.values())
    return subjects_called([each for name in names for each in GROUPS.get(name, (name.replace("_", "-"),))])


def sweep_named(console: Console, subjects: Sequence[Subject], kept: FaultReport) -> int:
    """Stop every subject at every name that it reaches, by every action; say so line by line, and how it ended."""
    from conformance.runner.session import without_aws_variables

    without_aws_variables()
    found: list[SpotResult] = []
    kept.so_far = lambda: _so_far(found)
    refused = Refusals(console)
    engine, store = kept.engine, kept.store
    began = time.monotonic()
    with (
        in_words(console) as ended,
        progress_line(console, "spots") as advance,
        running(store) as place,
        blaming(place),
        quickened(engine) as process,
    ):
        try:
            with Crew(process, place.env, place.fresh_root) as crew:
                for subject in subjects:
                    if not crew.can_try(subject):
                        refused.add(Refused(subject.name, f"it needs {', '.join(subject.needs)}", unsupported=True))
                for result in vouched(place, sweep(crew, subjects=subjects)):
                    found.append(result)
                    advance(result.wrong is not None)
                    _show(result, console)
        except Unsupported as lacking:
            refused.add(Refused("failpoints", str(lacking), unsupported=True))
    if any(result.reached for result in found):
        console.print(matrix(found))
        say_rate(console, len(found), "spots", time.monotonic() - began)
    return verdict_of(console, kept, refused, ended)


def _so_far(found: Sequence[SpotResult]) -> SoFar:
    counts: dict[str, dict[str, int]] = {}
    for result in found:
        row = counts.setdefault(result.spot.writer, {"spots": 0, "reached": 0, "wrong": 0})
        row["spots"] += 1
        row["reached"] += result.reached
        row["wrong"] += result.wrong is not None
    wrong = [Wrong(str(result.spot), *result.wrong) for result in found if result.wrong is not None]
    return SoFar(sum(result.reached for result in found), counts, wrong)


def _show(result: SpotResult, console: Console) -> None:
    style = "bold red" if result.wrong is not None else "green" if result.reached else "dim"
    console.print(f"[{style}]{escape(str(result))}[/]", highlight=False, soft_wrap=True)
