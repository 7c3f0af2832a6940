"""The verdict on measurements: what is over, what is under, what grows; and how it is told."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cost_budgets.budgets import Budget
from cost_budgets.counters import Tally
from cost_budgets.counters.tests.test_tally import exchange
from cost_budgets.curves import curve
from cost_budgets.formulas import parse_formula
from cost_budgets.judging import Line, judge
from cost_budgets.measuring import Measured, Point
from cost_budgets.operations import Ground
from cost_budgets.reporting import StoreCost, limits_of, points_of, report_of, slope_of, table_of, write_report
from cost_budgets.yardstick import beside, yardstick_table


def budget(operation: str = "insert-node", **more: Any) -> dict[str, Budget]:
    at_most = {name: parse_formula(text) for name, text in more.get("at_most", {}).items()}
    at_least = {name: parse_formula(text) for name, text in more.get("at_least", {}).items()}
    bounded = tuple(more.get("bounded", ()))
    return {operation: Budget(operation, ("COST-03",), ("validates-twice",), at_most, at_least, bounded=bounded)}


def point(requests: int, **variables: float) -> Point:
    given = {"T": 1.0, "H": 10.0, "B": 0.0, "R": 1.0, "F": 0.0, **variables}
    return Point(given, Tally.of([exchange("GET", "table data", "nodes/aa")] * requests))


def measured(*points: Point, ground: Ground = "grown") -> Measured:
    return Measured({("insert-node", ground): list(points)}, {"cleanup": "the engine does not declare cleanup"})


def verdict_of(points: Measured, **limits: Any) -> str:
    (line,) = judge(points, budget(**limits))
    return line.verdict


@pytest.mark.parametrize(
    ("requests", "formula", "verdict"),
    [
        ([20, 20, 20], "20", "ok"),
        ([20, 21, 20], "20", "over"),
        ([10, 12, 20], "20", "grows"),
        ([20, 12, 10], "20", "ok"),
        ([20, 21, 20], "30", "ok"),
        ([20, 60, 200], "10 + H", "ok"),
        ([20, 60, 211], "10 + H", "over"),
    ],
)
def test_a_budget_is_broken_by_a_point_or_by_growth(requests: list[int], formula: str, verdict: str) -> None:
    points = [point(number, H=depth) for number, depth in zip(requests, (10.0, 50.0, 200.0), strict=True)]
    assert verdict_of(measured(*points), at_most={"requests": formula}) == verdict


@pytest.mark.parametrize(
    ("then", "verdicts"),
    [
        ("100", {"20": "over", "100": "ok"}),
        ("15", {"15": "over"}),
        ("10 + 0.2 H", {"20": "over", "10 + 0.2 H": "ok"}),
        ("20 + 0.2 F", {"20 + 0.2 F": "over"}),
    ],
)
def test_after_an_optimize_the_stricter_ceiling_holds(then: str, verdicts: dict[str, str]) -> None:
    ((name, usual),) = budget(at_most={"requests": "20"}).items()
    strict = replace(usual, after_optimize={"requests": parse_formula(then)})
    points = measured(point(22, H=80.0), point(22, H=200.0), ground="optimized")
    assert {str(line.formula): line.verdict for line in judge(points, {name: strict})} == verdicts
    assert {str(line.formula) for line in judge(measured(point(20)), {name: strict})} == {"20"}


def test_growth_that_the_formula_allows_by_fragments_is_none() -> None:
    points = measured(*(point(10 + fragments, H=2 * fragments, F=fragments) for fragments in (5, 25, 100)))
    assert verdict_of(points, at_most={"requests": "10 + 2 F"}) == "ok"
    assert verdict_of(points, at_most={"requests": "110"}) == "grows"


@pytest.mark.parametrize(
    ("requests", "verdict"),
    [([15, 34, 18, 30], "ok"), ([14, 24, 32, 62], "grows"), ([60, 20, 50, 30], "ok"), ([10, 20, 65, 20], "over")],
)
def test_what_is_bounded_may_go_up_and_down_and_not_from_the_floor_to_the_ceiling(
    requests: list[int], verdict: str
) -> None:
    points = [point(number, H=depth) for number, depth in zip(requests, (10.0, 50.0, 80.0, 200.0), strict=True)]
    assert verdict_of(measured(*points), at_most={"requests": "64"}, bounded=["requests"]) == verdict


@pytest.mark.parametrize(
    ("requests", "verdict"),
    [([15, 21, 25, 36, 40, 43], "grows"), ([30, 14, 41, 44, 17, 33], "ok"), ([14, 14, 16, 40, 44, 42], "grows")],
)
def test_what_is_bounded_comes_back_to_its_floor(requests: list[int], verdict: str) -> None:
    depths = (10.0, 50.0, 80.0, 200.0, 227.0, 254.0)
    points = [point(number, H=depth) for number, depth in zip(requests, depths, strict=True)]
    assert verdict_of(measured(*points), at_most={"requests": "64"}, bounded=["requests"]) == verdict


def test_a_floor_that_rises_with_fragments_as_its_formula_does_is_no_growth() -> None:
    points = measured(*(point(10 + 2 * number, H=number, F=number) for number in (5, 20, 40, 60)))
    assert verdict_of(points, at_most={"requests": "20 + 2 F"}, bounded=["requests"]) == "ok"
    assert verdict_of(points, at_most={"requests": "140"}, bounded=["requests"]) == "grows"


@pytest.mark.parametrize(("ground", "variable"), [("loads", "R"), ("wide", "C")])
def test_growth_with_rows_or_tables_is_growth(ground: Ground, variable: str) -> None:
    points = measured(*(point(20 + size, **{variable: size}) for size in (6, 24)), ground=ground)
    assert verdict_of(points, at_most={"requests": "60"}, bounded=["requests"]) == "grows"
    assert verdict_of(points, at_most={"requests": f"30 + {variable}"}) == "ok"


def test_growth_with_branches_is_growth() -> None:
    points = measured(*(point(10 * branches, B=branches) for branches in (4, 8, 12)), ground="branched")
    assert verdict_of(points, at_most={"requests": "120"}) == "grows"
    assert verdict_of(points, at_most={"requests": "240"}, bounded=["requests"]) == "grows"
    assert verdict_of(points, at_most={"requests": "10 B"}) == "ok"


def test_a_branch_more_at_one_depth_hides_no_growth_with_history() -> None:
    points = measured(*(point(depth, H=depth, B=depth == 50) for depth in (10, 50, 90)))
    assert verdict_of(points, at_most={"requests": "100"}) == "grows"


def test_who_looks_too_little_is_under() -> None:
    assert verdict_of(measured(point(0)), at_least={"reads": "1"}) == "under"
    assert verdict_of(measured(point(1)), at_least={"reads": "1"}) == "ok"


def lines_of() -> list[Line]:
    points = measured(point(20), point(26, H=50.0), point(33, H=200.0))
    return judge(points, budget(at_most={"requests": "30"}, at_least={"reads": "1"}))


def test_the_table_says_measured_limit_slope_and_verdict() -> None:
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(table_of(lines_of()))
    first, second = console.export_text().splitlines()[1:3]
    assert first.split() == [
        "insert-node", "grown", "at", "most", "requests", "H", "10", "50", "200", "20", "26", "33", "30",
        "0.06", ">", "0.03", "per", "H", "30", "over",
    ]  # fmt: skip
    assert second.split()[-2:] == ["1", "ok"]


def test_the_table_says_where_it_was_measured_and_what_the_formula_was_given() -> None:
    """So that a reader can compute the limits, and the slope with what is tolerated of it."""
    points = measured(*(point(number, H=depth, F=files) for number, depth, files in [(39, 5, 4), (79, 20, 23)]))
    (line,) = judge(points, budget(at_most={"requests": "54 + 2 F + T"}))
    assert points_of(line) == "H 5 20, F 4 23, T 1"
    assert (limits_of(line), slope_of(line)) == ("63 101", "2.67 ≤ 2.87 per H")
    assert line.as_json()["slope_tolerance"] == pytest.approx(5 / 15, abs=1e-4)


def test_beside_the_public_engine_each_line_says_how_deep_its_graph_was() -> None:
    points: dict[tuple[str, Ground], list[Point]] = {
        ("cold-query", "grown"): [point(9, H=40.0), point(12, H=84.0)],
        ("cold-query", "optimized"): [point(8, H=109.0)],
    }
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(yardstick_table(beside(Measured(points))))
    _, heads, *rows = (line.split() for line in console.export_text().splitlines())
    assert heads == ["operation", "graph", "commits", "requests", "public", "engine", "at", "80", "ratio"]
    assert [row[:4] for row in rows] == [["cold-query", "grown", "84", "12"], ["cold-query", "optimized", "109", "8"]]


def test_a_curve_says_its_numbers_without_colour() -> None:
    drawn = curve([line for line in lines_of() if line.bound == "at_most"])
    assert all(f">{number}</text>" in drawn for number in (20, 26, 33))
    assert 'aria-label="requests of insert-node by commits of main"' in drawn
    assert "#" not in drawn and "color" not in drawn


def test_a_report_is_a_page_and_a_file_for_programs(tmp_path: Path) -> None:
    lines = lines_of()
    costs = [StoreCost("moto", "Granite 1", measured(point(20)), lines, 3.0)]
    guards = {"insert-node": ("COST-03",)}
    report = report_of(costs, engine="<b>", profile="quick", guards=guards)
    page = write_report(tmp_path / "new", report, costs, guards).read_text()
    read = json.loads((tmp_path / "new" / "cost.json").read_text())
    assert read["verdict"] == "over" and read["budgets"][0]["points"][2] == {
        "T": 1, "H": 200, "B": 0, "R": 1, "F": 0, "measured": 33, "limit": 30
    }  # fmt: skip
    assert all(each["guards"] == ["COST-03"] and each["store"] == "moto" for each in read["budgets"])
    assert (
        "<td>H 10 50 200</td>" in page
        and '<span class="whole">COST-03</span>' in page
        and "0.06 &gt; 0.03 per H" in page
    )
    assert "Granite 1, measured on moto" in page and read["seconds"] == 3.0
    assert "&lt;b&gt;" in page and "<b>" not in page and "<svg" in page and "cleanup: the engine does not" in page
