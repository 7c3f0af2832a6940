"""The shortest part of a failing sequence that still breaks the same requirement, within a budget of replays.

First steps are taken away, ever smaller parts of them, and then what is left of them is made simpler: records and
statements that are not needed go, and so do values, actors and handles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from conformance.judge import RequirementBroken
from conformance.sequences.player import Player, Step


@dataclass(frozen=True)
class Failure:
    """How a sequence failed: the steps up to the failing one, and the requirements that it broke."""

    steps: tuple[Step, ...]
    ids: tuple[str, ...]
    because: str


def replay_steps(start: Callable[[], Player], steps: Sequence[Step]) -> Failure | None:
    """Play steps on a new graph; how it failed, or None if everything held."""
    player = start()
    for number, step in enumerate(steps, 1):
        try:
            player.play(step)
        except RequirementBroken as broken:
            return Failure(tuple(steps[:number]), broken.ids, broken.because)
    return None


def shrink(start: Callable[[], Player], failure: Failure, *, replays: int) -> Failure:
    """Make a failure smaller while what is left breaks one of the same requirements.

    The last step is the one that failed and always stays. Ends early when nothing can be taken away.
    """
    budget = _Budget(start, failure, replays)
    return _simpler(_shorter(failure, budget), budget)


class _Budget:
    """Replays, as long as there are any: what is tried must break one of the same requirements."""

    def __init__(self, start: Callable[[], Player], failure: Failure, replays: int) -> None:
        self._start, self._ids, self.left = start, set(failure.ids), replays

    def still_fails(self, steps: Sequence[Step]) -> Failure | None:
        self.left -= 1
        found = replay_steps(self._start, steps)
        return found if found is not None and self._ids & set(found.ids) else None


def _shorter(best: Failure, budget: _Budget) -> Failure:
    size = max(1, (len(best.steps) - 1) // 2)
    while budget.left > 0 and len(best.steps) > 1:
        shorter = None
        for begin in range(0, len(best.steps) - 1, size):
            if budget.left == 0:
                break
            end = min(begin + size, len(best.steps) - 1)
            shorter = budget.still_fails([*best.steps[:begin], *best.steps[end:]])
            if shorter is not None:
                break
        if shorter is not None:
            best = shorter
            size = min(size, max(1, (len(best.steps) - 1) // 2))
        elif size > 1:
            size //= 2
        else:
            break
    return best


def _simpler(best: Failure, budget: _Budget) -> Failure:
    """Step by step, from the last one on: it decides what the others have to prepare."""
    number = len(best.steps) - 1
    while number >= 0:
        simpler = None
        for step in _simpler_steps(best.steps[number]):
            if budget.left == 0:
                return best
            simpler = budget.still_fails([*best.steps[:number], step, *best.steps[number + 1 :]])
            if simpler is not None:
                best = simpler
                break
        # What is simpler may fail earlier: then the steps after it are gone.
        number = min(number, len(best.steps) - 1) if simpler is not None else number - 1
    return best


def _simpler_steps(step: Step) -> Iterator[Step]:
    """The step with one thing less, the largest things first."""
    for name in ("records", "statements"):
        parts = step.get(name, [])
        if len(parts) > 2:
            yield {**step, name: parts[len(parts) // 2 :]}
            yield {**step, name: parts[: len(parts) // 2]}
        if len(parts) > 1:
            for i in range(len(parts)):
                yield {**step, name: [*parts[:i], *parts[i + 1 :]]}
    for name in ("actor", "handle"):
        if step.get(name) is not None:
            yield {each: value for each, value in step.items() if each != name}
    for name in ("records", "statements"):
        for i, part in enumerate(step.get(name, [])):
            for values in ("data", "set"):
                for less in _without_each(part.get(values, {})):
                    yield {**step, name: [*step[name][:i], {**part, values: less}, *step[name][i + 1 :]]}


def _without_each(values: dict[str, object]) -> Iterator[dict[str, object]]:
    for name in values if len(values) > 1 else ():
        yield {each: value for each, value in values.items() if each != name}
