"""Graphs for tests that need no engine: what an engine would show of a model, and calls with the ends that they had."""

from __future__ import annotations

from typing import Any

from conformance.model import Model
from failpoints.pairs.judge import Shown
from failpoints.pairs.orders import Call
from failpoints.steps import Step, mean
from failpoints.world import ACKNOWLEDGED, REFUSED, UNKNOWN, Ending
from failpoints.writers import PEOPLE, SCHEMA


def graph(*steps: Step) -> Model:
    """A graph of some people, after some more steps."""
    return after(Model.from_source(SCHEMA), PEOPLE, *steps)


def after(model: Model, *steps: Step) -> Model:
    for step in steps:
        model = mean(model, step).model
    return model


def done(lane: str, step: Step, number: int = 0, *, commit: str | None = None) -> Call:
    """A call that was acknowledged, with the commit that its answer named."""
    answer = {"commit": None if commit is None else {"graph_commit_id": commit}}
    return Call(lane, number, step, Ending(ACKNOWLEDGED, answer))


def refused(lane: str, step: Step, kind: str = "conflict", number: int = 0) -> Call:
    return Call(lane, number, step, Ending(REFUSED, error=f"{kind}/some_code: no"))


def unsure(lane: str, step: Step, number: int = 0) -> Call:
    return Call(lane, number, step, Ending(UNKNOWN, error="outcome_pending/outcome_pending: who knows"))


def showing(model: Model, *, actors: dict[str, str] | None = None) -> dict[str, Shown]:
    """What an engine shows that has exactly this graph."""
    seen = {}
    for branch in model.branch_list():
        commits: list[dict[str, Any]] = []
        for commit in model.commits(branch):
            commits.append(
                {
                    "graph_commit_id": commit.commit_id,
                    "parent_commit_id": commits[-1]["graph_commit_id"] if commits else None,
                    "merged_parent_commit_id": next((each.commit_id for each in model.parents(commit)[1:]), None),
                    "manifest_version": commit.manifest_version,
                    "created_at": commit.created_at,
                    "actor_id": (actors or {}).get(commit.commit_id),
                }
            )
        seen[branch] = Shown(model.export(branch), frozenset(model.schema.types), tuple(commits))
    return seen
