"""What a measurement leaves: a table for the terminal, `cost.json` for programs, `cost.html` for people."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.table import Table

from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED
from cost_budgets.curves import drawn_of, legend_of
from cost_budgets.formulas import VARIABLES
from cost_budgets.judging import Line
from cost_budgets.measuring import Measured
from cost_budgets.yardstick import beside
from failpoints.gate import Exchange
from failpoints.gate.roles import place_of

FORMAT: Final = 1
_PAGE: Final = Path(__file__).with_name("page")
_STYLES: Final = {"ok": "green", "over": "bold red", "under": "bold red", "grows": "bold red"}
# The verdicts of a store, the worst first, and with what a command ends that has no worse one.
CODES: Final[Mapping[str, int]] = {
    "incomplete": COULD_NOT_RUN,
    "over": FAILS,
    "under": FAILS,
    "nothing_measured": NOTHING_TESTED,
    "within": CONFORMS,
}


@dataclass(frozen=True)
class StoreCost:
    """What was found at one store: how the engine calls itself, what was measured, and how long that took.

    A store that is not here was `skipped`, and where the engine or the store broke down the measurement is `broken`:
    both say why.
    """

    store: str
    engine: str = ""
    found: Measured = field(default_factory=Measured)
    lines: Sequence[Line] = ()
    seconds: float = 0.0
    skipped: str = ""
    broken: str = ""

    @property
    def wrong(self) -> list[Line]:
        return [line for line in self.lines if line.verdict != "ok"]

    @property
    def verdict(self) -> str:
        """In a word. What could not be measured may be over its budget, or not: nobody knows."""
        if self.found.failed or self.broken:
            return "incomplete"
        if not self.lines:
            return "nothing_measured"
        if not self.wrong:
            return "within"
        return "under" if all(line.verdict == "under" for line in self.wrong) else "over"

    @property
    def words(self) -> str:
        """How many budgets were held against what was measured, and how much was not."""
        if self.skipped or self.broken:
            return f"{self.skipped or self.broken}."
        kept = (
            "none held against anything"
            if not self.lines
            else f"{len(self.wrong)} broken"
            if self.wrong
            else "all kept"
        )
        said = f"{len(self.lines)} budgets, {kept}"
        if self.found.unsupported:
            said += f", of what could be measured: {len(self.found.unsupported)} unsupported"
        if self.found.failed:
            said += f"; {len(self.found.failed)} could not be measured"
        return f"{said}."


def worst_verdict(costs: Sequence[StoreCost]) -> str:
    return min((each.verdict for each in costs), key=list(CODES).index)


def table_of(lines: Sequence[Line]) -> Table:
    """Of every budget: where it was measured, what came of it, the limit, the slope, and the verdict."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("operation", "graph", "measure"):
        table.add_column(name, no_wrap=True)
    table.add_column("at")
    for name in ("measured", "limit", "slope", "allowed"):
        table.add_column(name, justify="right")
    table.add_column("verdict", no_wrap=True)
    for line in lines:
        table.add_row(
            line.operation,
            line.ground,
            f"{bound_of(line)} {line.measure}",
            points_of(line),
            " ".join(map(str, line.values)),
            limits_of(line),
            slope_of(line),
            str(line.formula),
            f"[{_STYLES[line.verdict]}]{line.verdict}[/]",
        )
    return table


def points_of(line: Line) -> str:
    """Where it was measured: the variable that grows, and those of the formula, so that its limits can be checked."""
    names = dict.fromkeys([line.along, *line.formula.slopes])
    return ", ".join(f"{name} {_once([f'{point[name]:g}' for point in line.variables])}" for name in names)


def limits_of(line: Line) -> str:
    return _once([f"{limit:g}" for limit in line.limits])


def _once(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else " ".join(values)


def slope_of(line: Line) -> str:
    """The slope of the line through all points, and how steep it may be: the formula's slope, and what is tolerated."""
    if line.bound == "at_least" or len(line.values) < 2:
        return ""
    most = line.slope_limit + line.slope_tolerance
    return f"{line.slope + 0.0:.2f} {'≤' if line.slope <= most else '>'} {most:.2f} per {line.along}"


def bound_of(line: Line) -> str:
    return "at most" if line.bound == "at_most" else "at least"


def report_of(
    costs: Sequence[StoreCost], *, engine: str, profile: str, guards: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Everything that was measured, as plain values. `guards` are the requirements behind each operation's budget."""
    return {
        "format": FORMAT,
        "engine": engine,
        "engine_says": next((each.engine for each in costs if each.engine), ""),
        "store": ", ".join(each.store for each in costs),
        "profile": profile,
        "seconds": round(sum(each.seconds for each in costs), 1),
        "verdict": worst_verdict(costs),
        "stores": [
            {
                "store": each.store,
                "verdict": each.verdict,
                "verdict_words": each.words,
                "seconds": round(each.seconds, 1),
                "unsupported": dict(each.found.unsupported),
                "failed": dict(each.found.failed),
                "unclassified": unclassified_of(each.found),
                "beside_the_public_engine": [row.as_json() for row in beside(each.found)],
            }
            for each in costs
        ],
        "budgets": [
            {"store": each.store, **line.as_json(), "guards": list(guards.get(line.operation, ()))}
            for each in costs
            for line in each.lines
        ],
        "measurements": [
            {
                "store": each.store,
                "operation": operation,
                "ground": ground,
                "variables": dict(point.variables),
                **point.tally.as_json(),
            }
            for each in costs
            for (operation, ground), points in each.found.points.items()
            for point in points
        ],
    }


def unclassified_of(measured: Measured) -> dict[str, str]:
    """Operations that asked for what is no part of a graph: how often at most, and one example."""
    found: dict[str, str] = {}
    for (operation, ground), points in measured.points.items():
        most = max((point.tally.unclassified for point in points), key=len)
        if most:
            what = f"{most[0].verb} {_named(most[0])}"
            found[f"{operation}, {ground}"] = f"{len(most)} requests of no known kind, for example {what}"
    return found


def _named(exchange: Exchange) -> str:
    """What a request is for, in a word: a bulk delete by the first of its keys that no graph has."""
    strange = (key for key in exchange.keys if place_of(key).role == "other")
    return exchange.key or exchange.prefix or next(strange, "") or "the bucket"


def write_report(
    directory: Path, report: Mapping[str, Any], costs: Sequence[StoreCost], guards: Mapping[str, Sequence[str]]
) -> Path:
    """Write `cost.json` and `cost.html`; the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cost.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    page = directory / "cost.html"
    page.write_text(_page(report, costs, guards), encoding="utf-8")
    return page


def _page(report: Mapping[str, Any], costs: Sequence[StoreCost], guards: Mapping[str, Sequence[str]]) -> str:
    environment = Environment(loader=FileSystemLoader(_PAGE), autoescape=True, undefined=StrictUndefined)
    style = (_PAGE / "cost.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("cost.html").render(
        report=report,
        costs=list(zip(report["stores"], costs, strict=True)),
        guards=guards,
        variables=VARIABLES,
        drawn=drawn_of,
        legend=legend_of([line for each in costs for line in each.lines]),
        style=Markup(style),
        style_hash=f"sha256-{digest}",
        points=points_of,
        limits=limits_of,
        slope=slope_of,
        bound=bound_of,
    )
