"""Serial orders: in which order two lanes can have happened, by the model alone. Pure.

An acknowledged call has happened, a refused one has not, and one that nobody knows the end of has happened whole or not
at all, perhaps after later calls of its own lane: somebody may have recovered it. A refusal other than a conflict must
be what the model says at that place too: it names a state, and the state must have been there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from conformance.model import Model, Refusal
from conformance.model.merge import Commit
from failpoints.steps import MAIN, MAINTENANCE, Step, branch_of, mean
from failpoints.world import ACKNOWLEDGED, REFUSED, UNKNOWN, Ending

CONFLICT: Final = "conflict"
# Lanes as an order names them. Whoever died before the two began is in neither.
CRASHED: Final = "crashed"
LETTERS: Final = {"first": "A", "second": "B", CRASHED: ""}


@dataclass(frozen=True)
class Call:
    """One step of a lane, and how it ended for whoever asked for it."""

    lane: str
    number: int
    step: Step
    ending: Ending

    @property
    def is_maintenance(self) -> bool:
        return self.step["do"] in MAINTENANCE

    @property
    def refused_as(self) -> str | None:
        """The kind of a definite refusal, as errors begin with it."""
        if self.ending.kind != REFUSED:
            return None
        return str(self.ending.error).partition("/")[0]

    def __str__(self) -> str:
        return f"{self.step['do']} of the {self.lane} lane"


@dataclass(frozen=True)
class Done:
    """A call that has happened, and the commit that it made, if it made one."""

    call: Call
    branch: str
    commit: Commit | None


@dataclass(frozen=True)
class Serial:
    """One order: what has happened, one after the other, and the graph after it (None if there is none)."""

    done: tuple[Done, ...]
    model: Model | None

    @property
    def order(self) -> str:
        """A for the first lane and B for the second, without repetition and without what changes no row: `AB`, `B`."""
        named = (LETTERS[each.call.lane] for each in self.done if not each.call.is_maintenance)
        letters = [letter for letter in named if letter]
        return "".join(letter for n, letter in enumerate(letters) if n == 0 or letters[n - 1] != letter)


def mean_of(model: Model | None, step: Step) -> tuple[Model, Commit | None]:
    """What a step makes of a graph, or of none: `init` makes one where none is."""
    if step["do"] == "init":
        if model is not None:
            raise Refusal("conflict", "graph_exists", "there is a graph already")
        made = Model.from_source(step["schema"])
        return made, made.head()
    if model is None:
        raise Refusal("not_found", "graph_not_found", "there is no graph")
    meaning = mean(model, step)
    return meaning.model, meaning.commit


def serial_orders(model: Model | None, lanes: Sequence[Sequence[Call]]) -> list[Serial]:
    """Every order that the endings allow and the model accepts."""
    return list(_orders(Serial((), model), tuple(tuple(lane) for lane in lanes if lane)))


def _orders(so_far: Serial, lanes: tuple[tuple[Call, ...], ...]) -> Iterator[Serial]:
    if not lanes:
        yield so_far
        return
    for number, (call, *rest) in enumerate(lanes):
        others = lanes[:number] + lanes[number + 1 :]
        left = (*others, tuple(rest)) if rest else others
        for after in _outcomes(so_far, call):
            yield from _orders(after, left)
        if call.ending.kind == UNKNOWN and rest:
            # It may happen after later calls of its lane.
            yield from _orders(so_far, (*others, tuple(rest), (call,)))


def _outcomes(so_far: Serial, call: Call) -> Iterator[Serial]:
    """What may be after a call, when everything before it has happened."""
    done = _done(so_far, call, call.step)
    match call.ending.kind:
        case "acknowledged":
            if done is not None:
                yield done
        case "refused":
            if call.refused_as == CONFLICT or call.is_maintenance or done is None:
                yield so_far
                yield from _half_way(so_far, call)
        case "unknown":
            yield so_far
            if done is not None:
                yield done
            yield from _half_way(so_far, call)


def _done(so_far: Serial, call: Call, step: Step) -> Serial | None:
    try:
        model, commit = mean_of(so_far.model, step)
    except Refusal:
        return None
    return Serial((*so_far.done, Done(call, branch_of(step), commit)), model)


def _half_way(so_far: Serial, call: Call) -> Iterator[Serial]:
    """A load that makes its branch may leave that, and nothing else [LOD-12]."""
    step = call.step
    if step["do"] == "load" and step.get("base") is not None:
        made = _done(so_far, call, {"do": "branch_create", "name": step["branch"], "source": step["base"] or MAIN})
        if made is not None:
            yield replace(made, done=so_far.done)


def unknown(call: Call) -> Call:
    """The same call, with an end that nobody knows: for finding out what an engine has done instead."""
    return replace(call, ending=Ending(UNKNOWN))


def was_acknowledged(call: Call) -> bool:
    return call.ending.kind == ACKNOWLEDGED


def was_refused(call: Call) -> bool:
    return call.ending.kind == REFUSED
