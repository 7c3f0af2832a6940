"""A storm from a seed: the state machine makes the steps, the seed the weather, and a failure is cut down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.judge import RequirementBroken
from conformance.sequences.machine import run_sequences
from conformance.sequences.player import Player, Step
from conformance.sequences.shrinking import Failure, shrink
from conformance.sequences.vocabulary import BASE
from failpoints.storms.player import StormPlayer
from failpoints.workshop import Bench, ask
from fixtures.stores.catalog import Store

# A storm is told in several graphs: one that grows for ever is slow, and starts only once.
STEPS_PER_GRAPH: Final = 25
REPLAYS_TO_SHRINK: Final = 40

# Told of each step when it is over, and of the weather and the ending that it had.
Played = Callable[[Step, str], object]


@dataclass
class StormResult:
    """What a storm was like: the steps that were done, the weather, how steps ended, and what was wrong."""

    seed: int
    operations: int = 0
    graphs: int = 0
    weathers: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    failure: Failure | None = None
    schema: str = BASE

    def trace(self) -> dict[str, Any]:
        """What a failed storm leaves, for `conformance.traces.make_trace`."""
        assert self.failure is not None
        return {
            "kind": "storm",
            "test": f"storm-seed-{self.seed}",
            "broke": list(self.failure.ids),
            "because": self.failure.because,
            "operations": [],
            "schema": self.schema,
            "steps": [dict(step) for step in self.failure.steps],
        }


def run_storm(
    bench: Bench,
    store: Store,
    *,
    seed: int,
    operations: int,
    played: Played = lambda step, told: None,
    replays: int = REPLAYS_TO_SHRINK,
    result: StormResult | None = None,
) -> StormResult:
    """Play so many operations from a seed, each graph for a while, until they are done or something is wrong.

    What looks wrong and is the store's end is `StoreBrokeDown`. Whoever gives a `result` has in it what was found,
    whatever ends the storm.
    """
    result = StormResult(seed) if result is None else result
    while result.operations < operations and result.failure is None:
        steps = min(STEPS_PER_GRAPH, operations - result.operations)
        _one_graph(bench, store, result, steps, played, replays)
    return result


def _one_graph(bench: Bench, store: Store, result: StormResult, steps: int, played: Played, replays: int) -> None:
    number = result.seed * 1000 + result.graphs
    result.graphs += 1
    told = Told(bench, store, BASE, seed=number, played=played)
    waiting = [told]

    def start() -> Player:
        if not waiting:
            # Hypothesis wants to see a failure a second time. In this weather nothing comes twice.
            raise Over
        return waiting.pop()

    try:
        run_sequences(start, number=number, sequences=1, steps=steps)
    except Exception:
        if told.failure is None:
            raise
    finally:
        _count(result, told)
        told.close()
    if told.failure is not None and not isinstance(told.failure, RequirementBroken):
        raise told.failure
    if told.failure is not None:
        ask(store)
        result.failure = Failure(tuple(told.steps), told.failure.ids, told.failure.because)
        result.failure = _shortest(bench, store, result.failure, replays)


def _shortest(bench: Bench, store: Store, failed: Failure, replays: int) -> Failure:
    """The fewest steps that still fail so; all of them where that cannot be found out.

    The store was there when they failed. If it is gone before they are shortened, what fails is no longer the engine.
    """
    players: list[StormPlayer] = []

    def start() -> Player:
        for player in players:
            player.close()
        players[:] = [StormPlayer(bench, store, BASE, seed=None)]
        return players[0]

    try:
        shortest = shrink(start, failed, replays=replays)
        return shortest if store.silence() is None else failed
    except (AdapterFault, EngineError, Unsupported):
        return failed
    except Exception:
        if store.silence() is None:
            raise
        return failed
    finally:
        for player in players:
            player.close()


def _count(result: StormResult, player: StormPlayer) -> None:
    result.operations += max(1, len(player.steps))
    result.weathers += player.weathers
    result.endings += player.endings
    result.done += player.done


class Over(Exception):
    """A storm that has passed does not come back."""


class Told(StormPlayer):
    """A player that tells of each step, and remembers what it failed with."""

    def __init__(self, bench: Bench, store: Store, schema: str, *, seed: int | None, played: Played) -> None:
        self._played = played
        self.failure: Exception | None = None
        super().__init__(bench, store, schema, seed=seed)

    def play(self, step: Step) -> None:
        try:
            super().play(step)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._played(step, self.told)
