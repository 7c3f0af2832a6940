"""What an append on Spark costs does not grow with the rows that are there, beyond the look at their keys."""

from __future__ import annotations

from pathlib import Path

from cost_budgets.benchmarks.serial import loaded_serially
from cost_budgets.benchmarks.test_spark_load import SIMPLE, write_people
from reference.graph import Graph


def test_an_append_reads_the_ids_that_are_there_and_nothing_else(tmp_path: Path) -> None:
    more = write_people(tmp_path / "more", first=10_000, nodes=50, edges=50)
    spent = []
    for people in (100, 1_000):
        graph = Graph.init(str(tmp_path / f"graph{people}"), SIMPLE)
        loaded_serially(graph, write_people(tmp_path / f"in{people}", first=0, nodes=people, edges=5 * people))
        spent.append(loaded_serially(graph, more))
    little, much = spent
    assert little.reads == much.reads > 0
    assert little.key_columns == much.key_columns == {"id"}
    assert much.key_rows == 10 * little.key_rows > 0, "the rows that were there are counted, and no others"
