"""A failing cell as a trace, and the way back: any engine can be asked to die at the same place.

Another engine makes other requests. The place is therefore found by what the request does, as in "the second PUT of a
table version of nodes/…". An engine that makes no such request cannot be cut there, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import LISTING, Cut, cuts_of
from failpoints.cuts.sweep import SweptWriter, sweep_init
from failpoints.gate import Exchange
from failpoints.workshop import Bench
from failpoints.writers import SCHEMA, WRITERS, Writer
from fixtures.stores.catalog import Store


def trace_of(result: CellResult) -> dict[str, Any]:
    """What a failing cell leaves, for `conformance.traces.make_trace`."""
    writer = WRITERS[result.writer]
    assert result.wrong is not None
    ids, because = result.wrong
    second = {} if result.second is None else {"second": result.second.as_json()}
    return {
        "kind": "cut",
        "test": name_of(result),
        "broke": list(ids),
        "because": because,
        "operations": [],
        "schema": SCHEMA,
        "steps": [dict(step) for step in (*writer.setup, writer.step)],
        "fault": {"cut": result.cut.as_json(), **second},
        "requests": list(result.requests),
    }


def name_of(result: CellResult) -> str:
    """A cell as a name, also of a file."""
    listing = ["listing"] if result.cut.request == LISTING else []
    parts = [result.writer, *listing, f"{result.cut.moment}-{result.cut.nth}"]
    if result.second is not None:
        parts.append(f"recovery-{result.second.moment}-{result.second.nth}")
    return "-".join(parts)


def replay_cut(trace: Mapping[str, Any], bench: Bench, store: Store) -> CellResult:
    """Run the one cell that a trace tells of."""
    cut = Cut.from_json(trace["fault"].get("cut"), "trace.fault.cut")
    second = trace["fault"].get("second")
    double = None if second is None else Cut.from_json(second, "trace.fault.second")
    *setup, step = trace["steps"]
    writer = Writer(trace["test"], "of a trace", tuple(setup), step)
    nowhere = CellResult(writer.name, cut, double, reached=False)
    if step["do"] == "init":
        found = sweep_init(bench, store, writer, chosen=lambda durable: _listed(same_place(cut, durable)))
        return next(found, nowhere)
    swept = SweptWriter.prepared(bench, store, writer, schema=trace["schema"], double="none")
    durable = swept.count()
    place = next(iter(swept.listings), None) if cut.request == LISTING else same_place(cut, durable)
    if place is None:
        return nowhere
    if double is None:
        (result,) = swept.cell(place)
        return result
    if double.request == LISTING:
        found = swept.listing_again(place)
    else:
        found = swept.doubles_at(place, lambda recovery: _listed(same_place(double, recovery)))
    result = next(found, nowhere)
    # Where there was nothing to recover, there was no second crash either.
    return result if result.second is not None or result.wrong is not None else nowhere


def _listed(cut: Cut | None) -> list[Cut]:
    return [] if cut is None else [cut]


def same_place(cut: Cut, durable: Sequence[Exchange]) -> Cut | None:
    """The cut of a trace among the requests of the engine that is asked now; None where it makes no such request.

    A cut that says nothing of its request is the one at its number.
    """
    if cut.moment in ("ack", "pre_ack"):
        return replace(cut, nth=len(durable) if cut.moment == "pre_ack" else cut.nth)
    here = [each for each in cuts_of(tuple(durable)) if each.moment == cut.moment]
    alike = [each for each in here if cut.request in ("", each.request)]
    if not cut.request:
        alike = [each for each in alike if each.nth == cut.nth]
    elif cut.occurrence:
        alike = [each for each in alike if each.occurrence == cut.occurrence]
    return min(alike, key=lambda each: abs(each.nth - cut.nth), default=None)
