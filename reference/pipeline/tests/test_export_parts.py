"""How an export is cut: rows travel only where they must, and the parts are the engine's export either way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.graph import Graph
from reference.pipeline import export_plan
from reference.pipeline.export import Exported, export
from reference.pipeline.export_plan import Extent, groups
from reference.pipeline.id_order import ascending_order, cut_places, sorted_by_id
from reference.pipeline.pinned import PinnedTable, pin
from reference.pipeline.tests.graphs import rich_graph, text

SCHEMA = "node Thing {\n  name: String @key\n  size: I32?\n}\n"
TABLE = PinnedTable("node:Thing", "memory://x", 1, 0, (), "nodes/x", "memory://x", None)


def things(*loads: list[str], place: Path, schema: str = SCHEMA) -> Graph:
    """A graph with one fragment for each of some lists of names, in that order."""
    graph = Graph.init(str(place), schema)
    for names in loads:
        graph.load(text({"type": "Thing", "data": {"name": name, "size": 1}} for name in names), mode="append")
    return graph


def names(start: int, stop: int) -> list[str]:
    return [f"thing-{number:05}" for number in range(start, stop)]


def shuffled(values: list[str]) -> list[str]:
    return random.Random(7).sample(values, len(values))


def exported(nobody: Any, graph: Graph, out: Path, part_rows: int) -> Exported:
    """An export to JSON lines, which has to be the engine's own."""
    done = export(nobody, graph, pin(graph), str(out), part_rows=part_rows)
    found = b"".join(path.read_bytes() for path in sorted(out.glob("part-*.jsonl")))
    assert found == b"".join(graph.export())
    return done


# -- which rows travel -------------------------------------------------------------------------------------------------


def test_a_table_of_one_part_is_read_and_written_by_one_task(nobody: Any, tmp_path: Path) -> None:
    values = shuffled(names(0, 40))
    graph = things(values[:20], values[20:], place=tmp_path / "graph")
    done = exported(nobody, graph, tmp_path / "out", 40)
    assert (nobody.jobs, nobody.blocks, len(done.files)) == (["writing jsonl"], 0, 1)


def test_fragments_that_share_no_range_of_ids_are_written_as_they_are(nobody: Any, tmp_path: Path) -> None:
    loads = [shuffled(names(start, start + 30)) for start in (60, 0, 30)]
    graph = things(*loads, place=tmp_path / "graph")
    done = exported(nobody, graph, tmp_path / "out", 30)
    assert (nobody.jobs, nobody.blocks, len(done.files)) == (["writing jsonl"], 0, 3)


def test_small_neighbours_share_a_part(nobody: Any, tmp_path: Path) -> None:
    graph = things(*(shuffled(names(start, start + 10)) for start in (20, 0, 10, 30)), place=tmp_path / "graph")
    assert len(exported(nobody, graph, tmp_path / "out", 20).files) == 2
    assert nobody.blocks == 0


def test_a_large_fragment_in_order_is_cut_where_its_rows_lie(nobody: Any, tmp_path: Path) -> None:
    graph = things(names(0, 100), place=tmp_path / "graph")
    where = {"property": "name", "op": "lt", "value": "thing-00013"}
    graph.mutate([{"op": "delete", "type": "Thing", "where": where}])
    done = exported(nobody, graph, tmp_path / "out", 20)
    assert (nobody.jobs, nobody.blocks, len(done.files)) == (["writing jsonl"], 0, 5)


def test_a_fragment_is_in_order_only_if_all_of_it_is(
    nobody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_plan, "_READ_AT_ONCE", 10)
    graph = things([*names(50, 100), *names(0, 50)], place=tmp_path / "graph")
    exported(nobody, graph, tmp_path / "out", 20)
    assert nobody.blocks > 0, "each batch is in order, and the fragment is not"


def test_rows_that_lie_in_between_each_other_are_exchanged_and_no_others(nobody: Any, tmp_path: Path) -> None:
    mixed = shuffled(names(0, 100))
    graph = things(mixed[:50], mixed[50:], shuffled(names(100, 130)), place=tmp_path / "graph")
    done = exported(nobody, graph, tmp_path / "out", 20)
    assert nobody.jobs == ["writing jsonl"], "one job for both kinds of parts"
    assert len(done.files) == 6 and nobody.blocks > 5


@pytest.mark.parametrize("part_rows", [1, 3, 10_000])
def test_the_parts_are_the_export_of_every_kind_of_value(nobody: Any, tmp_path: Path, part_rows: int) -> None:
    exported(nobody, rich_graph(tmp_path / "graph", people=20), tmp_path / "out", part_rows)


def test_ids_that_begin_alike_are_cut_evenly(nobody: Any, tmp_path: Path) -> None:
    """Addresses of two hosts and one directory, and ids of which one is the beginning of the next."""
    urls = [f"https://{host}.example.org/a/very/long/path/{n:04}" for host in ("a", "b") for n in range(100)]
    mixed = shuffled([*urls, *("x" * n for n in range(1, 101))])
    graph = things(mixed[:150], mixed[150:], place=tmp_path / "graph")
    done = exported(nobody, graph, tmp_path / "out", 30)
    sizes = [len(path.read_bytes().splitlines()) for path in sorted((tmp_path / "out").iterdir())]
    assert len(done.files) == 10 and max(sizes) <= 60, sizes


def test_what_is_too_much_for_the_driver_is_looked_at_by_tasks(
    nobody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = shuffled(names(0, 60))
    graph = things(mixed[:30], mixed[30:], place=tmp_path / "graph")
    for name in ("HERE_ROWS", "HERE_FRAGMENTS"):
        with monkeypatch.context() as patch:
            patch.setattr(export_plan, name, 1)
            exported(nobody, graph, tmp_path / name, 10)
    assert nobody.jobs == ["looking at ids", "writing jsonl"] * 2


def test_small_fragments_are_sampled_too(nobody: Any, tmp_path: Path) -> None:
    """A step that is longer than any fragment must not leave them all out."""
    mixed = shuffled(names(0, 400))
    graph = things(*(mixed[start : start + 20] for start in range(0, 400, 20)), place=tmp_path / "graph")
    looked = _extents(graph, step=50)
    sample = [each for extent in looked for each in extent.sample]
    assert len(looked) == 20 and 4 <= len(sample) <= 12


def _extents(graph: Graph, step: int) -> list[Extent]:
    from reference.pipeline.export_plan import Look, look
    from reference.pipeline.scans import shares

    return [each for share in shares(pin(graph), "node:Thing") for each in look(Look(share, step, with_versions=False))]


# -- without rows ------------------------------------------------------------------------------------------------------


def test_a_graph_without_rows_has_a_file_of_each_table(nobody: Any, tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA + "edge Likes: Thing -> Thing\n")
    done = export(nobody, graph, pin(graph), str(tmp_path / "out"), format="parquet")
    assert sorted(done.files) == ["edges/Likes/part-00000.parquet", "nodes/Thing/part-00000.parquet"]
    assert pq.read_table(tmp_path / "out" / "nodes" / "Thing").schema.names == ["name", "size"]
    assert pq.read_table(tmp_path / "out" / "edges" / "Likes").num_rows == 0
    assert nobody.jobs == [] and done.to_json()["records"] == 0


def test_a_graph_without_rows_is_one_empty_file_of_lines(nobody: Any, tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    assert exported(nobody, graph, tmp_path / "out", 10).files == ("part-00000.jsonl",)


# -- the order of ids --------------------------------------------------------------------------------------------------


ids = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="ab\0", max_size=12),
    st.builds(lambda end: f"https://example.org/{end}", st.text(alphabet="xyz", max_size=12)),
    st.text(alphabet="ab", min_size=10, max_size=10),
)


@given(st.lists(ids, unique=True, max_size=60), st.integers(0, 5), st.lists(ids, max_size=5))
def test_rows_are_sorted_and_cut_by_the_bytes_of_their_ids(values: list[str], skipped: int, points: list[str]) -> None:
    array = pa.array(["", *values], pa.string())[1:][skipped:]
    rows = sorted_by_id(pa.table({"id": array, "place": range(len(array))}))
    expected = sorted(array.to_pylist(), key=str.encode)
    assert rows["id"].to_pylist() == expected
    assert [array[place].as_py() for place in rows["place"].to_pylist()] == expected
    points = sorted(set(points), key=str.encode)
    places = cut_places(rows["id"], points)
    assert places[1:-1] == [sum(each.encode() < point.encode() for each in expected) for point in points]


def test_ids_in_order_are_left_alone() -> None:
    assert ascending_order(pa.array(["a", "ab", "b"])) is None
    assert ascending_order(pa.array([], pa.string())) is None


def test_fragments_with_the_same_id_belong_together() -> None:
    """A graph that is not sound is exported in order all the same."""
    extents = [Extent(0, 10, "a", "m", True), Extent(1, 10, "m", "z", True)]
    assert len(list(groups(TABLE, {}, extents, 10))) == 1
    assert len(list(groups(TABLE, {}, [extents[0], Extent(1, 10, "n", "z", True)], 10))) == 2
