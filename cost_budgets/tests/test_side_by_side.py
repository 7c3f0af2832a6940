"""Two engines beside each other: which points are compared, by what, and where they were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cost_budgets.counters import Tally
from cost_budgets.counters.tests.test_tally import exchange
from cost_budgets.measuring import Measured, Point
from cost_budgets.reporting import StoreCost, report_of
from cost_budgets.side_by_side import read_costs, side_by_side


def costs(path: Path, *points: tuple[str, str, int, int], along: str = "B", store: str = "moto") -> Path:
    """A cost.json of points on two graphs: one by commits, and one by something else."""
    rows: list[dict[str, Any]] = [
        {
            "store": each_store,
            "operation": "insert-node",
            "ground": ground,
            "variables": {"H": 40, "B": 0, name: at},
            "requests": requests,
        }
        for each_store in store.split(", ")
        for ground, name, at, requests in points
    ]
    budgets = [
        {"operation": "insert-node", "ground": ground, "along": name, "measure": "requests", "verdict": "ok"}
        for ground, name in (("grown", "H"), ("branched", along))
    ]
    body = {"engine": "e", "store": store, "profile": "quick", "budgets": budgets, "measurements": rows}
    path.write_text(json.dumps(body))
    return path


def test_what_grew_with_branches_is_compared_by_branches(tmp_path: Path) -> None:
    """Main is as deep at each of these points: by commits all but one would be lost."""
    points = (("grown", "H", 10, 7), ("branched", "B", 4, 55), ("branched", "B", 8, 71))
    read = read_costs(costs(tmp_path / "cost.json", *points))
    rows = side_by_side(read, read).rows
    assert ("insert-node", "grown", "7 at 10", "7 at 10", "-") in rows
    assert ("insert-node", "branched, by branches besides main", *["55 at 4, 71 at 8"] * 2, "-") in rows


def test_a_file_with_several_stores_is_refused(tmp_path: Path) -> None:
    path = costs(tmp_path / "cost.json", ("grown", "H", 10, 7), store="moto, seaweedfs")
    with pytest.raises(ValueError, match="several stores, moto, seaweedfs: measure on one"):
        read_costs(path)


def test_costs_on_different_stores_are_not_compared(tmp_path: Path) -> None:
    here, there = (
        read_costs(costs(tmp_path / f"{store}.json", ("grown", "H", 10, 7), store=store)) for store in ("moto", "minio")
    )
    with pytest.raises(ValueError, match="different stores, moto and minio: measure both on one"):
        side_by_side(here, there)


def test_what_was_measured_says_by_whom_on_which_store_and_in_which_profile(tmp_path: Path) -> None:
    """As `touchstone cost --report` writes it."""
    tally = Tally.of([exchange("GET", "table data", "nodes/aa")] * 7)
    found = Measured({("insert-node", "grown"): [Point({"H": 10.0}, tally)]})
    body = report_of([StoreCost("moto", "Granite 1", found)], engine="e", profile="quick", guards={})
    (tmp_path / "cost.json").write_text(json.dumps(body))
    read = read_costs(tmp_path / "cost.json")
    assert (read.engine, read.store, read.profile) == ("e", "moto", "quick")
    assert read.costs == {("insert-node", "grown"): {10: 7}}


@pytest.mark.parametrize("text", ["[]", "{}", "no JSON", '{"measurements": [{"store": "moto"}]}'])
def test_what_is_no_measurement_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cost.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"cost\.json is no cost\.json of `touchstone cost`"):
        read_costs(path)
