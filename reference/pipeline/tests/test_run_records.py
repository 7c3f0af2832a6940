"""What is read from the records of runs, before Spark sees any of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reference.pipeline.run_records import read_records
from reference.pipeline.tests.test_history import cost


def at(store: str, requests: int) -> list[dict[str, Any]]:
    return [{**point, "store": store} for point in cost(requests)["measurements"]]


def test_a_measurement_of_several_stores_is_a_fact_of_each(tmp_path: Path) -> None:
    body = {**cost(1), "store": "moto, seaweedfs", "measurements": at("moto", 20) + at("seaweedfs", 30)}
    (tmp_path / "cost.json").write_text(json.dumps(body))
    found = read_records(str(tmp_path / "cost.json"))
    requests = {(each.store, each.value) for each in found.costs if each.measure == "requests"}
    assert requests == {("moto", 20.0), ("seaweedfs", 30.0)}
