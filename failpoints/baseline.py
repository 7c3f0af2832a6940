"""Baselines: the graph that a writer changes, built once by the engine under test and put back for every cell.

A baseline is a photograph of every object. It is put back at the same address, byte for byte: branches hold the address
of their graph, so a copy elsewhere would be another graph. An engine that is asked after that is always a process that
has not seen the graph before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.judge import Engine, Handle
from conformance.model import Model
from failpoints.steps import MAIN, Step
from failpoints.world import ACKNOWLEDGED, attempt, the_one, worlds_after
from failpoints.writers import SCHEMA
from fixtures.forge import Forge, Photo


class SetupFailed(Exception):
    """The graph could not be prepared: the engine refused a step of the set-up. Nothing was judged."""


@dataclass(frozen=True)
class Baseline:
    """A graph before its writer: where it is, what it means, and all of its objects."""

    uri: str
    env: Mapping[str, str] = field(repr=False)
    model: Model = field(repr=False)
    photo: Photo = field(repr=False)
    setup: tuple[Step, ...] = ()
    schema: str = SCHEMA

    def restore(self) -> None:
        Forge(self.uri, dict(self.env)).restore(self.photo)


def begin(engine: Engine, uri: str, schema: str) -> tuple[Handle, Model]:
    """A new graph, open, and its model."""
    model = Model.from_source(schema)
    engine.init(uri, schema)
    handle = engine.open(uri)
    first = handle.commits(MAIN)[0]
    model.identify(model.head(), first["graph_commit_id"], first["manifest_version"], first["created_at"])
    return handle, model


def build(engine: Engine, uri: str, env: Mapping[str, str], setup: Sequence[Step], *, schema: str = SCHEMA) -> Baseline:
    """Have the engine make the graph, step by step, and photograph it."""
    handle, model = begin(engine, uri, schema)
    for step in setup:
        ending = attempt(handle, step)
        if ending.kind != ACKNOWLEDGED:
            raise SetupFailed(f"the graph could not be prepared: {step['do']} ended {ending}")
        worlds, what = worlds_after(model, step, ending), f"{step['do']} in the set-up"
        model = the_one(handle, worlds, what, ("PUB-14",), recoveries_max=0).model
    handle.close()
    return Baseline(uri, env, model, Forge(uri, dict(env)).photograph(""), tuple(setup), schema)
