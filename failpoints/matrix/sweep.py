"""The sweep over the matrix: every subject, at every name, by every action that is asked for.

    with Crew("reference", {}, fresh_root) as crew:
        for result in sweep(crew):
            print(result)

Which names a subject reaches is found out by killing it at each. Only those are tried with the other actions: an error
at a name that is best effort shows nowhere, so nobody could tell it from one that was never reached.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

from failpoints.matrix.crew import Crew
from failpoints.matrix.spots import ACTIONS, KILL, PAUSE, Action, Spot, SpotResult
from failpoints.matrix.subjects import SUBJECTS, Subject
from failpoints.matrix.trials import Stopped, stop
from failpoints.names import (
    FORK_BEFORE_CLASSIFY,
    NAMES,
    OPTIMIZE_BEFORE_COMPACT,
    RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH,
)

# The names that stand for a race: somebody is meant to be met there.
RENDEZVOUS: frozenset[str] = frozenset(
    {FORK_BEFORE_CLASSIFY, OPTIMIZE_BEFORE_COMPACT, RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH}
)


def try_spots(crew: Crew, subject: Subject, spots: Iterable[Spot]) -> Iterator[SpotResult]:
    """Stop one subject at each spot, then judge each: by then nobody who died can be taken for alive."""
    stopped = [stop(crew, subject, spot) for spot in spots]
    for each in stopped:
        yield each.judged(crew.judge) if isinstance(each, Stopped) else each


def sweep(
    crew: Crew,
    *,
    subjects: Sequence[Subject] = tuple(SUBJECTS.values()),
    names: Iterable[str] = NAMES,
    actions: Sequence[Action] = ACTIONS,
) -> Generator[SpotResult, None, None]:
    """Try the whole matrix, or the part of it that is asked for. Subjects that the engine cannot do are left out.

    Every name is tried with `kill`, also where that is not asked for, and "not reached" is a result.
    """
    ordered = sorted(names)
    for subject in subjects:
        if not crew.can_try(subject):
            continue
        reached = []
        for result in try_spots(crew, subject, [Spot(subject.name, name, KILL) for name in ordered]):
            if result.reached:
                reached.append(result.spot.name)
            if KILL in actions:
                yield result
        others = [
            Spot(subject.name, name, action)
            for action in actions
            if action != KILL
            for name in reached
            if action != PAUSE or name in RENDEZVOUS
        ]
        for result in try_spots(crew, subject, others):
            yield replace(result, reached=True)
