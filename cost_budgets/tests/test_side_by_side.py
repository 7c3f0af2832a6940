"""Two engines beside each other: which points are compared, and by what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
        {"operation": "insert-node", "ground": ground, "along": name}
        for ground, name in (("grown", "H"), ("branched", along))
    ]
    path.write_text(json.dumps({"engine": "e", "store": store, "budgets": budgets, "measurements": rows}))
    return path


def test_what_grew_with_branches_is_compared_by_branches(tmp_path: Path) -> None:
    """Main is as deep at each of these points: by commits all but one would be lost."""
    points = (("grown", "H", 10, 7), ("branched", "B", 4, 55), ("branched", "B", 8, 71))
    read = read_costs(costs(tmp_path / "cost.json", *points))
    table = side_by_side(read, read, tmp_path / "costs.svg")["table"]
    assert "| insert-node | grown | 7 at 10 | 7 at 10 |" in table
    assert "| insert-node | branched, by branches besides main | 55 at 4, 71 at 8 | 55 at 4, 71 at 8 |" in table


def test_a_file_with_several_stores_is_refused(tmp_path: Path) -> None:
    path = costs(tmp_path / "cost.json", ("grown", "H", 10, 7), store="moto, seaweedfs")
    with pytest.raises(ValueError, match="several stores, moto, seaweedfs: measure on one"):
        read_costs(path)
