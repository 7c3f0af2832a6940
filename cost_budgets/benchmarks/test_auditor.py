"""The auditor against one full scan of the manifest that it audits, on a graph with a long history.

    pytest cost_budgets/benchmarks/test_auditor.py --benchmark-only

Two ratios: all that the format demands (`--no-data`), and that with every row of every table besides. The second grows
with the files of the tables, which no scan of a manifest reads; both are taken before and after an optimize.
"""

from __future__ import annotations

import json
from typing import Any

import lance
import pytest

from conformance.audit import audit
from cost_budgets.benchmarks.conftest import Ratios, alternating
from reference.graph import Graph

NODES, EDGES, COMMITS = 14, 6, 1_000


@pytest.fixture(scope="module")
def long_history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph of 20 tables and 1,000 commits."""
    schema = "".join(f"node T{number} {{\n  name: String @key\n  value: I32?\n}}\n" for number in range(NODES))
    schema += "".join(f"edge E{number}: T{number} -> T{number + 1}\n" for number in range(EDGES))
    uri = str(tmp_path_factory.mktemp("audit") / "graph")
    graph = Graph.init(uri, schema)
    for number in range(COMMITS):
        record = {"type": f"T{number % NODES}", "data": {"name": f"n{number % 50}", "value": number}}
        graph.load(json.dumps(record), mode="merge")
    return uri


def scan_manifest(uri: str) -> None:
    lance.dataset(f"{uri}/__manifest").to_table()


@pytest.mark.parametrize("optimized", [False, True], ids=["as written", "optimized"])
def test_the_auditor_against_one_scan_of_the_manifest(
    long_history: str, optimized: bool, benchmark: Any, ratios: Ratios
) -> None:
    if optimized:
        Graph.open(long_history).optimize()
    assert audit(long_history).ok and audit(long_history).checked["commits"] >= COMMITS

    whole, format_only, scan = alternating(
        15,
        lambda _: audit(long_history),
        lambda _: audit(long_history, data=False),
        lambda _: scan_manifest(long_history),
    )

    state = "optimized" if optimized else "as written"
    of = "one scan of its __manifest"
    ratios.add(
        f"audit of {COMMITS} commits and {NODES + EDGES} tables, {state}, no rows", format_only / scan, budget=10, of=of
    )
    ratios.add(
        f"audit of {COMMITS} commits and {NODES + EDGES} tables, {state}, all rows", whole / scan, budget=10, of=of
    )
    benchmark.pedantic(lambda: audit(long_history), rounds=5)
