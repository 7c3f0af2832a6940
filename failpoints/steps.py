"""Steps: one operation as a plain value, for an engine to do and for the model to mean.

    {"do": "mutate", "statements": [...], "branch": "feature", "actor": "ann"}

These are the steps of `conformance.sequences`, so that a trace of a fault reads like a trace of a sequence. `ask` has
an engine do one, `mean` says what it does to a model. Neither judges: `world` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.judge import Handle
from conformance.judge.graph import text_of
from conformance.model import Model, Refusal
from conformance.model.merge import Commit

Step = Mapping[str, Any]
MAIN: Final = "main"
# Steps that leave every row as it is. What they commit, if anything, is up to the engine.
MAINTENANCE: Final = ("optimize", "ensure_indices", "cleanup", "repair", "refresh", "open")


class StepError(ValueError):
    """A step that nobody can do: what is wrong with it."""


@dataclass(frozen=True)
class Meaning:
    """What a step means: the graph after it, and the commit that it makes, if it makes one."""

    model: Model
    commit: Commit | None = None


def branch_of(step: Step) -> str:
    """The branch that a step writes."""
    return str(step.get("target" if step["do"] == "merge" else "branch") or MAIN)


def mean(model: Model, step: Step) -> Meaning:
    """What a step does to a graph; the model that was given stays as it is. A `Refusal` if it must be refused."""
    after = model.copy()
    return Meaning(after, _meanings()[_known(step)](after, step))


def meaning_or_none(model: Model, step: Step) -> Meaning | None:
    """What a step does, or None if it must be refused."""
    try:
        return mean(model, step)
    except Refusal:
        return None


def ask(handle: Handle, step: Step) -> Any:
    """Have an engine do a step; what it answers, or its error."""
    return _requests()[_known(step)](handle, step)


def _known(step: Step) -> str:
    do = step.get("do")
    if do not in _requests():
        raise StepError(f"there is no step {do!r}; there are {', '.join(sorted(_requests()))}")
    return str(do)


def _meanings() -> Mapping[str, Callable[[Model, Step], Commit | None]]:
    return {
        "load": lambda model, step: (
            model.load(
                text_of(step["records"]),
                mode=step.get("mode", "merge"),
                branch=branch_of(step),
                base=step.get("base"),
            ).commit
        ),
        "mutate": lambda model, step: model.mutate(step["statements"], branch=branch_of(step)).commit,
        "merge": lambda model, step: model.merge(step["source"], branch_of(step)).commit,
        "branch_create": lambda model, step: model.branch_create(step["name"], step.get("source") or MAIN),
        "branch_delete": lambda model, step: model.branch_delete(step["name"]),
        "schema_apply": lambda model, step: (
            model.schema_apply(step["source"], allow_data_loss=step.get("allow_data_loss", False)).commit
        ),
        **{do: lambda model, step: None for do in MAINTENANCE},
    }


def _requests() -> Mapping[str, Callable[[Handle, Step], Any]]:
    return {
        "load": lambda handle, step: handle.load(
            text_of(step["records"]),
            step.get("mode", "merge"),
            branch=step.get("branch"),
            base=step.get("base"),
            actor=step.get("actor"),
        ),
        "mutate": lambda handle, step: handle.mutate(
            *step["statements"], branch=step.get("branch"), actor=step.get("actor")
        ),
        "merge": lambda handle, step: handle.merge(step["source"], branch_of(step), actor=step.get("actor")),
        "branch_create": lambda handle, step: handle.branch_create(step["name"], step.get("source")),
        "branch_delete": lambda handle, step: handle.branch_delete(step["name"]),
        "schema_apply": lambda handle, step: handle.schema_apply(
            step["source"], allow_data_loss=step.get("allow_data_loss")
        ),
        "optimize": lambda handle, step: handle.optimize(),
        "ensure_indices": lambda handle, step: handle.ensure_indices(step.get("branch")),
        "cleanup": lambda handle, step: handle.cleanup(keep_versions=step.get("keep_versions", 1)),
        "repair": lambda handle, step: handle.repair(step.get("branch"), confirm=True),
        "refresh": lambda handle, step: handle.refresh(),
        "open": lambda handle, step: handle.engine.open(step["uri"]).close(),
    }
