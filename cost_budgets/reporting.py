"""What a measurement leaves: a table for the terminal, `cost.json` for programs, `cost.html` for people."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.table import Table

from cost_budgets.curves import curve
from cost_budgets.judging import Line
from cost_budgets.measuring import Measured
from cost_budgets.yardstick import beside

FORMAT: Final = 1
_PAGE: Final = Path(__file__).with_name("page")
_STYLES: Final = {"ok": "green", "over": "bold red", "under": "bold red", "grows": "bold red"}


def table_of(lines: Sequence[Line]) -> Table:
    """Measured, limit, slope and verdict of every budget."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("operation", "graph", "measure"):
        table.add_column(name, no_wrap=True)
    for name in ("measured", "limit", "slope", "allowed"):
        table.add_column(name, justify="right")
    table.add_column("verdict", no_wrap=True)
    for line in lines:
        table.add_row(
            line.operation,
            line.ground,
            f"{bound_of(line)} {line.measure}",
            " ".join(map(str, line.values)),
            limits_of(line),
            slope_of(line),
            str(line.formula),
            f"[{_STYLES[line.verdict]}]{line.verdict}[/]",
        )
    return table


def limits_of(line: Line) -> str:
    limits = [f"{limit:g}" for limit in line.limits]
    return limits[0] if len(set(limits)) == 1 else " ".join(limits)


def slope_of(line: Line) -> str:
    if line.bound == "at_least":
        return ""
    return f"{line.slope + 0.0:.2f} per {line.along}"


def bound_of(line: Line) -> str:
    return "at most" if line.bound == "at_most" else "at least"


def report_of(
    measured: Measured, lines: Sequence[Line], *, engine: str, store: str, profile: str, verdict_words: str
) -> dict[str, Any]:
    """Everything that was measured, as plain values."""
    return {
        "format": FORMAT,
        "engine": engine,
        "store": store,
        "profile": profile,
        "verdict": verdict_of(measured, lines),
        "verdict_words": verdict_words,
        "budgets": [line.as_json() for line in lines],
        "measurements": [
            {"operation": operation, "ground": ground, "variables": dict(point.variables), **point.tally.as_json()}
            for (operation, ground), points in measured.points.items()
            for point in points
        ],
        "unsupported": dict(measured.unsupported),
        "failed": dict(measured.failed),
        "unclassified": unclassified_of(measured),
        "beside_the_public_engine": [each.as_json() for each in beside(measured)],
    }


def unclassified_of(measured: Measured) -> dict[str, str]:
    """Operations that asked for what is no part of a graph: how often at most, and one example."""
    found: dict[str, str] = {}
    for (operation, ground), points in measured.points.items():
        most = max((point.tally.unclassified for point in points), key=len)
        if most:
            what = f"{most[0].verb} {most[0].key or most[0].prefix}"
            found[f"{operation}, {ground}"] = f"{len(most)} requests of no known kind, for example {what}"
    return found


def verdict_of(measured: Measured, lines: Sequence[Line]) -> str:
    """In a word. What could not be measured may be over its budget, or not: nobody knows."""
    if measured.failed:
        return "incomplete"
    if not lines:
        return "nothing_measured"
    return "within" if all(line.verdict == "ok" for line in lines) else "over"


def write_report(directory: Path, report: Mapping[str, Any], lines: Sequence[Line]) -> Path:
    """Write `cost.json` and `cost.html`; the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cost.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    page = directory / "cost.html"
    page.write_text(_page(report, lines), encoding="utf-8")
    return page


def _page(report: Mapping[str, Any], lines: Sequence[Line]) -> str:
    environment = Environment(loader=FileSystemLoader(_PAGE), autoescape=True, undefined=StrictUndefined)
    style = (_PAGE / "cost.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("cost.html").render(
        report=report,
        lines=lines,
        curves=[curve(each) for each in _drawn(lines)],
        style=Markup(style),
        style_hash=f"sha256-{digest}",
        limits=limits_of,
        slope=slope_of,
        bound=bound_of,
    )


def _drawn(lines: Sequence[Line]) -> list[list[Line]]:
    """The requests of each operation: one curve for all of its graphs that vary the same, history or something else."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.measure == "requests" and line.bound == "at_most":
            found.setdefault((line.operation, line.along), []).append(line)
    return list(found.values())
