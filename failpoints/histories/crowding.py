"""Edges that nobody has published, and that a mutation may yet have counted.

How many edges a source has, a mutation counts in the table as it is at that moment, and not in the last published
state [VAL-11]. So it may be refused because of an edge that another call has committed to the table and never
publishes. No state of the chain explains that; the calls of the same time do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.model import Model
from failpoints.histories.record import Done, Step
from failpoints.histories.steps import branch_of


def may_be_crowded_out(model: Model, branch: str, done: Done, calls: Sequence[Done]) -> bool:
    """Whether a refused mutation would have too many edges with all that others may have had in the table then."""
    if done.step["do"] != "mutate":
        return False  # A load counts the edges of its snapshot.
    others = [other for other in calls if other.actor != done.actor and _may_be_in_the_table(other, done)]
    for edge, source, _ in _new_edges(done.step, done.actor):
        declared = model.schema.types.get(f"edge:{edge}")
        if declared is None or declared.edges_max is None:
            continue
        if any(other.step["do"] == "merge" for other in others):
            return True  # What a merge brings is the affair of another branch.
        there = {str(row["id"]) for row in model.read(f"edge:{edge}", branch) if row["src"] == source}
        for each in (done, *others):
            there |= {row for kind, of, row in _new_edges(each.step, each.actor) if (kind, of) == (edge, source)}
        if len(there) > declared.edges_max:
            return True
    return False


def _may_be_in_the_table(other: Done, done: Done) -> bool:
    """Whether a call may have had rows in the tables of a branch, published or not, while another was asked.

    What was left open, or refused as a conflict, may have left them there until somebody recovers [REC-07].
    """
    if branch_of(other.step) != branch_of(done.step) or other.outcome.began > done.outcome.ended:
        return False
    left_behind = other.outcome.verdict == "unknown" or other.outcome.answer.get("kind") == "conflict"
    return left_behind or other.outcome.ended > done.outcome.began


def _new_edges(step: Step, actor: str) -> Iterator[tuple[str, str, str]]:
    """Type, source and id of every edge that a step writes; one that gets its id from the engine is like no other."""
    written: Sequence[Mapping[str, Any]] = {
        "load": step.get("records", ()),
        "mutate": [each for each in step.get("statements", ()) if each["op"] == "insert"],
    }.get(step["do"], ())
    for number, each in enumerate(written):
        if "edge" in each:
            row_id = each.get("data", {}).get("id", f"{actor}/{number}")
            yield each["edge"], str(each["from"]), str(row_id)
