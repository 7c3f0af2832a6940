"""Two engines' costs beside each other: rows for a page, and a picture of each operation's requests by depth.

What is drawn was measured by `touchstone cost --report`, of both on one store. Each engine has a line of its own shape,
with its numbers at the points, so that nobody needs colour to tell them apart. It reads two files and writes none.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from markupsafe import escape

from cost_budgets.formulas import VARIABLES

_WIDTH: Final = 380
_HEIGHT: Final = 180
_COLUMNS: Final = 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 24, 30, 30
_DASHES: Final = ("", "6 4")
Points = dict[int, int]
# An operation, and the graph on which it was measured.
Key = tuple[str, str]
Costs = dict[Key, Points]


@dataclass(frozen=True)
class EngineCosts:
    """What one engine costs on one store: of each operation and graph the requests by commits, or by what else grew,
    and which measures went over their budgets there."""

    engine: str
    store: str
    profile: str
    costs: Costs
    budgets: int = 0
    over: Mapping[Key, Sequence[str]] = field(default_factory=dict)

    @property
    def number_over(self) -> int:
        return sum(map(len, self.over.values()))

    @property
    def command(self) -> str:
        """What measures them again."""
        return shlex.join(
            ["touchstone", "cost", "--engine", self.engine, "--store", self.store, "--profile", self.profile]
        )


@dataclass(frozen=True)
class SideBySide:
    """Two engines' costs on one store, and the picture. Each row has an operation, a graph, the requests of both and
    the measures of the engine that are over budget."""

    store: str
    engine: EngineCosts
    reference: EngineCosts
    rows: tuple[tuple[str, str, str, str, str], ...]
    picture: str


def read_costs(path: Path) -> EngineCosts:
    """A cost.json, of one engine on one store."""
    try:
        body: Mapping[str, Any] = json.loads(path.read_bytes())
        costs, stores = _points(body), list(dict.fromkeys(str(row["store"]) for row in body["measurements"]))
        engine, profile = str(body["engine"]), str(body["profile"])
        budgets, over = list(body.get("budgets", ())), _over(body)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ValueError(f"{path} is no cost.json of `touchstone cost`") from None
    if body.get("verdict") == "incomplete":
        raise ValueError(f"{path} is not whole: something could not be measured, and it may be over its budget or not")
    if not stores:
        raise ValueError(f"{path} has no measurements")
    if len(stores) > 1:
        raise ValueError(f"{path} has the costs on several stores, {', '.join(stores)}: measure on one")
    return EngineCosts(engine, stores[0], profile, costs, len(budgets), over)


def _points(body: Mapping[str, Any]) -> Costs:
    grew = {(row["operation"], row["ground"]): row["along"] for row in body.get("budgets", ())}
    found: Costs = {}
    for row in body["measurements"]:
        along = grew.get((row["operation"], row["ground"]), "H")
        found.setdefault(_key(row, along), {})[int(row["variables"][along])] = int(row["requests"])
    return found


def _over(body: Mapping[str, Any]) -> dict[Key, list[str]]:
    found: dict[Key, list[str]] = {}
    for row in body.get("budgets", ()):
        if row["verdict"] != "ok":
            found.setdefault(_key(row, row["along"]), []).append(str(row["measure"]))
    return found


def _key(row: Mapping[str, Any], along: str) -> Key:
    ground = str(row["ground"])
    return str(row["operation"]), ground if along == "H" else f"{ground}, by {VARIABLES.get(along, along)}"


def side_by_side(engine: EngineCosts, reference: EngineCosts) -> SideBySide:
    """Both on the one store on which they were measured; only operations that both were measured on."""
    if engine.store != reference.store:
        stores = f"{engine.store} and {reference.store}"
        raise ValueError(f"the costs were measured on different stores, {stores}: measure both on one")
    ours, theirs = reference.costs, engine.costs
    both = [key for key in theirs if key in ours]
    rows = tuple(
        (*key, _words(theirs[key]), _words(ours[key]), ", ".join(dict.fromkeys(engine.over.get(key, ()))) or "-")
        for key in both
    )
    drawn = [key for key in both if len(theirs[key]) > 1 and key[1] == "grown"]
    picture = _picture([(key[0], theirs[key], ours[key]) for key in drawn])
    return SideBySide(engine.store, engine, reference, rows, picture)


def _words(points: Points) -> str:
    return ", ".join(f"{requests} at {commits}" for commits, requests in sorted(points.items()))


def _picture(curves: list[tuple[str, Points, Points]]) -> str:
    rows = -(-len(curves) // _COLUMNS) or 1
    style = "text{font:11px sans-serif}.t{font-weight:bold}.a{fill:none;stroke:#888}.l{fill:none;stroke:#111}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH * _COLUMNS} {_HEIGHT * rows + 24}">',
        f"<style>{style}</style>",
        '<text x="8" y="14">solid with circles: the engine; dashed with squares: the reference</text>',
    ]
    for number, (operation, theirs, ours) in enumerate(curves):
        x, y = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT + 20
        parts.append(f'<g transform="translate({x} {y})">{_curve(operation, theirs, ours)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _curve(operation: str, theirs: Points, ours: Points) -> str:
    commits = [*theirs, *ours]
    low, high, top = min(commits), max(commits), max(*theirs.values(), *ours.values(), 1)
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT

    def place(at: int, requests: int) -> tuple[float, float]:
        across = (at - low) / (high - low) if high > low else 0.5
        return _LEFT + across * (right - _LEFT), bottom - requests / top * (bottom - _TOP)

    parts = [
        f'<text class="t" x="{_LEFT}" y="20">{escape(operation)}</text>',
        f'<path class="a" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        f'<text x="{_LEFT}" y="{bottom + 16}">{low}</text>',
        f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{high} commits</text>',
    ]
    for number, points in enumerate((theirs, ours)):
        places = [place(at, requests) for at, requests in sorted(points.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="l" stroke-dasharray="{_DASHES[number]}" points="{path}"/>')
        for (x, y), (_, requests) in zip(places, sorted(points.items()), strict=True):
            parts.append(_mark(number, x, y))
            parts.append(f'<text x="{x:.1f}" y="{y - 6:.1f}" text-anchor="middle">{requests}</text>')
    return "".join(parts)


def _mark(number: int, x: float, y: float) -> str:
    if number:
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
