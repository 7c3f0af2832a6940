"""What the public engine 0.8.0 costs, and how another engine compares: a yardstick, and no budget.

Its requests were counted at a proxy before MinIO, each operation in a process of its own, on a graph of six types with
eighty commits: as they had grown, and after its own optimize.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

from cost_budgets.measuring import Measured, Point
from cost_budgets.operations import Ground

DEPTH: Final = 80
# A graph gets deeper while it is measured, which makes nothing cheaper.
_DEEPEST: Final = 150
PUBLIC: Final[Mapping[str, Mapping[Ground, int]]] = {
    "cold-snapshot": {"grown": 375, "optimized": 35},
    "cold-query": {"grown": 453, "optimized": 32},
    "cold-insert-node": {"grown": 727, "optimized": 51},
    "cold-insert-edge": {"grown": 826, "optimized": 68},
    "cold-update": {"grown": 830, "optimized": 74},
    "cold-branch-create": {"grown": 1099, "optimized": 79},
    "cold-first-write": {"grown": 2420, "optimized": 216},
    "cold-merge": {"grown": 3552, "optimized": 249},
    "cold-branch-delete": {"grown": 1702, "optimized": 172},
}


@dataclass(frozen=True)
class Beside:
    """One operation at about eighty commits: what it takes here, and what it takes the public engine."""

    operation: str
    ground: Ground
    commits: int
    requests: int
    public: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def beside(measured: Measured) -> list[Beside]:
    """What was measured at the depth of the yardstick; nothing where a profile does not go so deep."""
    found = []
    for operation, by_ground in PUBLIC.items():
        for ground, public in by_ground.items():
            point = _at_depth(measured.points.get((operation, ground), ()))
            if point is not None:
                found.append(Beside(operation, ground, int(point.variables["H"]), point.tally.requests, public))
    return found


def _at_depth(points: Sequence[Point]) -> Point | None:
    return next((point for point in points if DEPTH <= point.variables["H"] <= _DEEPEST), None)


def yardstick_table(found: Sequence[Beside]) -> Table:
    """Side by side, for a terminal; with the depth, because a graph may have got deeper than the yardstick's."""
    table = Table(box=None, pad_edge=False, header_style="bold", title="beside the public engine 0.8.0")
    for name in ("operation", "graph"):
        table.add_column(name, no_wrap=True)
    for name in ("commits", "requests", f"public engine at {DEPTH}", "ratio"):
        table.add_column(name, justify="right")
    for each in found:
        ratio = f"{each.requests / each.public:.2f}"
        table.add_row(each.operation, each.ground, str(each.commits), str(each.requests), str(each.public), ratio)
    return table
