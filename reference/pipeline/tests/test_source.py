"""Tables as DataFrames: one snapshot, every type, filters pushed down, and no credentials in sight."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import field, int64, schema, string

from reference.errors import BadRequest
from reference.graph import Graph
from reference.pipeline.pinned import pin
from reference.pipeline.source import TableReader, read_table, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fixtures.stores.moto import MotoStore

FIXTURES = Path(__file__).parents[3] / "fixtures"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(
        str(tmp_path_factory.mktemp("source") / "graph"), (FIXTURES / "schemas" / "everything.pg").read_text()
    )
    graph.load((FIXTURES / "records" / "everything.jsonl").read_bytes(), mode="append")
    return graph


def frame(spark: SparkSession, graph: Graph, table: str, **options: str) -> Any:
    register(spark)
    return spark.read.format("omnigraph").options(table=table, **options).load(graph.store.root.uri)


def test_values_of_every_type_are_restored(spark: SparkSession, everything: Graph) -> None:
    register(spark)
    pinned = pin(everything)
    columns = ["id", "count", "day", "days", "direction", "huge", "moment"]
    rows = {row["id"]: row for row in read_table(spark, pinned, "node:Measure", columns).collect()}
    high = rows["HI-1"]
    assert (high["count"], high["huge"]) == (2**32 - 1, Decimal(2**64 - 1))
    assert high["day"] == datetime.date(9999, 12, 31) and high["days"] == []
    assert high["moment"] == datetime.datetime(9999, 12, 31, 23, 59, 59, 999000)
    assert [round(item, 6) for item in high["direction"]] == [0.1, 0.2, 0.3]
    assert set(rows["NU-2"][1:]) == {None}
    pictures = {row["id"]: row["content"] for row in read_table(spark, pinned, "node:Picture").collect()}
    assert bytes(pictures["full"]["data"]) == b"\x00\x01\x02\xfd\xfe\xff" and pictures["none"] is None
    assert bytes(pictures["empty"]["data"]) == b""


def test_a_frame_stays_at_its_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node Person { name: String @key }")
    graph.load('{"type": "Person", "data": {"name": "ann"}}', mode="append")
    people = frame(spark, graph, "node:Person")
    before = people.count()
    graph.load('{"type": "Person", "data": {"name": "bob"}}', mode="append")
    assert (before, people.count()) == (1, 1)
    assert frame(spark, graph, "node:Person").filter("name = 'bob'").count() == 1


def test_filters_that_mean_the_same_are_pushed_down_and_no_others() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNull, StringContains

    columns = schema([field("name", string()), field("age", int64())])
    reader = TableReader(None, columns.names, {}, columns)  # type: ignore[arg-type]
    given = [
        EqualTo(("name",), "O'Hara"),
        GreaterThan(("age",), 3),
        In(("name",), ("a", "b")),
        IsNull(("age",)),
        StringContains(("name",), "x"),
        EqualTo(("age",), 1.5),
        EqualTo(("other",), 1),
    ]
    assert list(reader.push(given)) == given[4:]
    assert reader.condition == "`name` = 'O''Hara' AND `age` > 3 AND `name` IN ('a', 'b') AND `age` IS NULL"


def test_a_filter_gives_the_same_rows_pushed_down_or_not(spark: SparkSession, everything: Graph) -> None:
    tickets = frame(spark, everything, "node:Ticket", columns="number")
    big = [row["number"] for row in tickets.filter("number > 7").collect()]
    assert sorted(big) == sorted(row["number"] for row in everything.read("node:Ticket") if row["number"] > 7)


@pytest.mark.s3
def test_credentials_are_in_no_plan(spark: SparkSession, moto_store: MotoStore) -> None:
    env = dict(moto_store.env)
    uri = moto_store.fresh_root()
    graph = Graph.init(uri, "node Person { name: String @key }", env=env)
    graph.load('{"type": "Person", "data": {"name": "ann"}}', mode="append")
    register(spark, env)
    people = spark.read.format("omnigraph").option("table", "node:Person").load(uri)
    assert [row["name"] for row in people.collect()] == ["ann"]
    plan = people._jdf.queryExecution().toString()
    settings = str(spark.sparkContext.getConf().getAll())
    assert env["AWS_SECRET_ACCESS_KEY"] not in plan + settings + repr(pin(graph))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"path": "x"}, "invalid_option"),
        ({"path": "GRAPH", "table": "node:Nobody"}, "unknown_type"),
        ({"path": "GRAPH", "table": "node:Ticket", "columns": "size"}, "invalid_option"),
        ({"path": "GRAPH", "table": "node:Ticket", "version": "one"}, "invalid_option"),
    ],
)
def test_an_option_that_means_nothing_is_refused(everything: Graph, options: dict[str, str], code: str) -> None:
    given = {name: everything.store.root.uri if value == "GRAPH" else value for name, value in options.items()}
    with pytest.raises(BadRequest) as refused:
        TableReader.of(given, None)
    assert refused.value.code == code
