"""Tables as DataFrames: one snapshot, every type, filters pushed down, and no credentials in sight."""

from __future__ import annotations

import dataclasses
import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import field, int64, schema, string

from reference.errors import BadRequest, NotFound
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


def test_a_session_that_somebody_else_made_can_read(spark: SparkSession, everything: Graph) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert frame(spark, everything, "node:Measure").filter("id = 'HI-1'").count() == 1


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


def every_filter(column: str, value: Any) -> list[Any]:
    """One filter of each class that Spark may hand to a source, on one column."""
    from pyspark.sql.datasource import Filter, Not

    made: dict[type[Any], Any] = {}
    kinds: list[Any] = Filter.__subclasses__()
    for kind in kinds:
        if kind is not Not:
            names = {each.name for each in dataclasses.fields(kind)}
            given = (value,) if kind.__name__ == "In" else value
            made[kind] = kind((column,), given) if "value" in names else kind((column,))
    return [*made.values(), *(Not(each) for each in made.values()), Not(Not(next(iter(made.values()))))]


def test_every_kind_of_filter_is_taken_or_handed_back() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    columns = schema([field("name", string()), field("age", int64())])
    taken = set()
    for column, value in (("name", "a"), ("age", 1), ("age", None), ("nobody", "a")):
        for each in every_filter(column, value):
            reader = TableReader(None, columns.names, {}, columns)  # type: ignore[arg-type]
            back = list(reader.push([each]))
            assert (back == [each]) == (reader.condition is None), each
            if not back:
                taken.add(type(each).__name__)
    assert taken == {
        "EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "IsNotNull", "IsNull", "LessThan", "LessThanOrEqual"
    }  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    ["number > 7", "number != 7", "number NOT IN (7, 8)", "CAST(number AS STRING) NOT LIKE '7%'", "NOT (number <=> 7)"],
)
def test_a_filter_gives_the_same_rows_pushed_down_or_not(
    spark: SparkSession, everything: Graph, condition: str
) -> None:
    frame(spark, everything, "node:Ticket", columns="number").createOrReplaceTempView("tickets")
    found = [row["number"] for row in spark.sql(f"SELECT * FROM tickets WHERE {condition}").collect()]
    rows = [(row["number"],) for row in everything.read("node:Ticket")]
    spark.createDataFrame(rows, "number long").createOrReplaceTempView("copied")
    assert sorted(found) == sorted(
        row["number"] for row in spark.sql(f"SELECT * FROM copied WHERE {condition}").collect()
    )


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
    reader = TableReader.of({"path": uri, "table": "node:Person"}, env)
    assert env["AWS_SECRET_ACCESS_KEY"] in reader.storage_options.values(), "it is carried"
    assert env["AWS_SECRET_ACCESS_KEY"] not in plan + settings + repr(pin(graph)) + repr(reader)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"path": "x"}, "invalid_option"),
        ({"path": "GRAPH", "table": "node:Nobody"}, "unknown_type"),
        ({"path": "GRAPH", "table": "node:Ticket", "columns": "size"}, "invalid_option"),
        ({"path": "GRAPH", "table": "node:Ticket", "version": "one"}, "invalid_option"),
        ({"path": "GRAPH", "table": "node:Ticket", "version": "²"}, "invalid_option"),
        ({"path": "GRAPH", "table": "node:Ticket", "verison": "1"}, "invalid_option"),
    ],
)
def test_an_option_that_means_nothing_is_refused(everything: Graph, options: dict[str, str], code: str) -> None:
    given = {name: everything.store.root.uri if value == "GRAPH" else value for name, value in options.items()}
    with pytest.raises(BadRequest) as refused:
        TableReader.of(given, None)
    assert refused.value.code == code


def test_an_unknown_option_is_named_with_those_there_are(everything: Graph) -> None:
    with pytest.raises(BadRequest) as refused:
        TableReader.of({"path": everything.store.root.uri, "table": "node:Ticket", "verison": "1"}, None)
    assert "'verison'" in refused.value.message and "version" in str(refused.value.hint)


def test_a_version_from_before_a_type_has_no_table_of_it(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node Person { name: String @key }")
    version = graph.snapshot().version
    graph.schema_apply("node Person { name: String @key }\nnode City { name: String @key }")
    with pytest.raises(NotFound) as refused:
        TableReader.of({"path": str(tmp_path / "graph"), "table": "node:City", "version": str(version)}, None)
    assert refused.value.code == "table_not_found" and refused.value.details["version"] == version
