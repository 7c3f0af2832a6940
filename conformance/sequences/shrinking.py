"""The shortest part of a failing sequence that still breaks the same requirement, within a budget of replays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Take away ever smaller parts while what is left breaks one of the same requirements.

    The last step is the one that failed and always stays. Ends early when no single step can be taken away.
    """
    best = failure
    size = max(1, (len(best.steps) - 1) // 2)
    while replays > 0 and len(best.steps) > 1:
        shorter = None
        for begin in range(0, len(best.steps) - 1, size):
            if replays == 0:
                break
            replays -= 1
            end = min(begin + size, len(best.steps) - 1)
            found = replay_steps(start, [*best.steps[:begin], *best.steps[end:]])
            if found is not None and set(found.ids) & set(failure.ids):
                shorter = found
                break
        if shorter is not None:
            best = shorter
            size = min(size, max(1, (len(best.steps) - 1) // 2))
        elif size > 1:
            size //= 2
        else:
            break
    return best
