"""One seed is one story: the same steps are done and refused on every store, and leave the same rows."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from conformance.judge import Engine
from conformance.sequences.machine import run_sequences
from conformance.sequences.player import Player, Step
from conformance.sequences.vocabulary import BASE
from fixtures.stores.catalog import Store, StoreUnavailable, kind_of, running

SEED = 7
STEPS = 12


class Written(Player):
    """A player that writes down what became of each step, in words that no store, id or clock is in."""

    def __init__(self, engine: Engine, store: Store) -> None:
        super().__init__(engine, store.fresh_root, store.env, BASE)
        self.transcript: list[tuple[Step, bool, dict[str, list[str]]]] = []

    def play(self, step: Step) -> None:
        super().play(step)
        self.transcript.append((step, self.refused, self._rows()))

    def _rows(self) -> dict[str, list[str]]:
        """Of every branch the rows, without the ids that the engine makes up."""
        found = {}
        for branch in self.graph.model.branch_list():
            records = [json.loads(line) for line in self.graph.handle.export(branch).split("\n") if line]
            names = {record["data"]["id"]: _named(record) for record in records if "type" in record}
            found[branch] = sorted(json.dumps(_without_ids(record, names), sort_keys=True) for record in records)
        return found


def _named(node: dict[str, Any]) -> str:
    """A node without its id, which an engine may have made up: what an edge leads to, in words of its own."""
    return json.dumps(_without_ids(node, {}), sort_keys=True)


def _without_ids(record: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    data = {name: value for name, value in record["data"].items() if name != "id"}
    ends: dict[str, Any] = {side: names.get(record[side], record[side]) for side in ("from", "to") if side in record}
    return {**{name: value for name, value in record.items() if name in ("type", "edge")}, **ends, "data": data}


@cache
def transcript(name: str) -> list[Any]:
    players: list[Written] = []
    with running(name) as store:
        engine = Engine.connect("reference", env=store.env)

        def start() -> Player:
            players.append(Written(engine, store))
            return players[-1]

        run_sequences(start, number=SEED, sequences=1, steps=STEPS)
        engine.close()
    return [player.transcript for player in players]


@pytest.mark.s3
@pytest.mark.parametrize("name", ["moto", "seaweedfs", "minio"])
def test_the_transcript_of_a_seed_is_the_same_on_every_store(name: str) -> None:
    reason = kind_of(name).missing()
    if reason is not None:
        pytest.skip(f"the store '{name}' cannot run here: {reason}")
    try:
        found = transcript(name)
    except StoreUnavailable as refusal:
        pytest.skip(str(refusal))
    expected = transcript("local")
    assert found == expected
    assert sum(len(steps) for steps in expected) >= STEPS
    assert any(not refused for steps in expected for _, refused, _ in steps)
