"""A schedule as a trace: everything that is needed to look at it, and to run it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from failpoints.gate import Exchange
from failpoints.pairs.pairs import SIDES, Pair, Side

if TYPE_CHECKING:
    from failpoints.pairs.schedule import ScheduleResult


def trace_of(pair: Pair, result: ScheduleResult, exchanges: Mapping[Side, Sequence[Exchange]]) -> dict[str, Any]:
    """For `conformance.traces.make_trace`."""
    lanes = pair.as_json()
    schema, setup = lanes.pop("schema"), lanes.pop("setup")
    requests = sorted((each for side in SIDES for each in exchanges[side]), key=lambda each: each.number)
    return {
        "kind": "pair",
        "test": f"{pair.name}, the {result.held} held {result.hold}",
        "broke": list(result.ids),
        "because": result.because,
        "operations": [],
        "schema": schema,
        "steps": setup,
        "fault": {
            **lanes,
            "held": result.held,
            "hold": result.hold.as_json(),
            "endings": {side: list(endings) for side, endings in result.endings.items()},
            "gap": result.gap,
        },
        "requests": [each.as_json() for each in requests],
    }
