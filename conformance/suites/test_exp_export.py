"""EXP: the export is the graph as text. Every value that was ever accepted is in it, and loads again as it was."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import EVERYTHING, PEOPLE, SOCIAL, edge, lines, node, person
from conformance.suites.refusals import refused

COLUMNS: Final = (
    "day", "double", "face", "flag", "huge", "large", "moment", "mood", "name", "natural", "numbers", "photo",
    "single", "small", "tags", "text",
)  # fmt: skip
# A property, a value as it is given, and the text of it in an export.
TEXTS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("day", "2020-01-01", "18262"),
    ("day", "1970-01-01", "0"),
    ("day", "1969-12-31", "-1"),
    ("day", 19000, "19000"),
    ("moment", "2026-01-02T03:04:05", '"2026-01-02T03:04:05"'),
    ("moment", "2026-01-02T03:04:05Z", '"2026-01-02T03:04:05"'),
    ("moment", "2026-01-02T03:04:05.678", '"2026-01-02T03:04:05.678"'),
    ("moment", "2026-01-02T03:04:05.6789", '"2026-01-02T03:04:05.678"'),
    ("moment", "2026-01-02T03:04:05.010", '"2026-01-02T03:04:05.010"'),
    ("moment", "2026-01-02T03:04:05+02:00", '"2026-01-02T01:04:05"'),
    ("moment", "2026-01-01T23:30:00-01:30", '"2026-01-02T01:00:00"'),
    ("moment", "1969-12-31T23:59:59.999", '"1969-12-31T23:59:59.999"'),
    ("moment", 0, '"1970-01-01T00:00:00"'),
    ("single", 0.1, "0.10000000149011612"),
    ("single", 1, "1.0"),
    ("single", -0.0, "-0.0"),
    ("single", 3.4028234663852886e38, "3.4028234663852886e+38"),
    ("single", 1.401298464324817e-45, "1.401298464324817e-45"),
    ("double", 0.1, "0.1"),
    ("double", 1, "1.0"),
    ("double", -0.0, "-0.0"),
    ("double", 0.00001, "0.00001"),
    ("double", 0.0000123, "0.0000123"),
    ("double", 0.000009999, "9.999e-6"),
    ("double", 1e-7, "1e-7"),
    ("double", 1.5e-7, "1.5e-7"),
    ("double", 1e15, "1000000000000000.0"),
    ("double", 1234567890123456.7, "1234567890123456.8"),
    ("double", 9999999999999998.0, "9999999999999998.0"),
    ("double", 1e16, "1e+16"),
    ("double", 1.5e300, "1.5e+300"),
    ("double", -2.5e-300, "-2.5e-300"),
    ("double", 1.7976931348623157e308, "1.7976931348623157e+308"),
    ("double", 5e-324, "5e-324"),
    ("face", [0.1, -0.0, 3], "[0.10000000149011612,-0.0,3.0]"),
    ("large", 2**63 - 1, "9223372036854775807"),
    ("large", -(2**63), "-9223372036854775808"),
    ("huge", 2**64 - 1, "18446744073709551615"),
    ("natural", 2**32 - 1, "4294967295"),
    ("small", -(2**31), "-2147483648"),
    ("flag", False, "false"),
    ("mood", "busy", '"busy"'),
    ("text", "", '""'),
    ("text", "a\u001fb", '"a\\u001fb"'),
    ("text", "a\nb\tc\rd", '"a\\nb\\tc\\rd"'),
    ("text", "\u0008\u000c", '"\\b\\f"'),
    ("text", "\u0000", '"\\u0000"'),
    ("text", 'quo"te', '"quo\\"te"'),
    ("text", "back\\slash/", '"back\\\\slash/"'),
    ("text", "\u007f\u2028\u2029", '"\u007f\u2028\u2029"'),
    ("text", "é ß 日本 😀", '"é ß 日本 😀"'),
    ("tags", ["a", None, ""], '["a",null,""]'),
    ("tags", [], "[]"),
    ("numbers", [3, -1], "[3,-1]"),
    ("photo", "base64:AAEC/w==", '"base64:AAEC/w=="'),
    ("photo", "base64:", '"base64:"'),
)


def rows_of(export: str) -> list[str]:
    """The lines of an export, which may hold other line ends inside of text."""
    assert export == "" or export.endswith("\n"), "every line is ended by a line feed"
    return export.split("\n")[:-1]


@pytest.mark.requirement("EXP-01")
def test_every_value_is_written_in_its_own_form(judged: Judged) -> None:
    things = [node("Thing", name=f"{number:02}", **{name: given}) for number, (name, given, _) in enumerate(TEXTS)]
    graph = judged(EVERYTHING, things)

    written = rows_of(graph.handle.export())

    with proving("EXP-01"):
        assert len(written) == len(TEXTS)
        for number, (name, _, text) in enumerate(TEXTS):
            values = dict.fromkeys(COLUMNS, "null") | {"name": f'"{number:02}"', name: text}
            data = ",".join(f'"{column}":{values[column]}' for column in COLUMNS)
            assert written[number] == f'{{"type":"Thing","data":{{"id":"{number:02}",{data}}}}}'


@pytest.mark.requirement("EXP-01", "EXP-02")
def test_nodes_and_edges_are_compact_lines_in_the_order_of_tables_and_ids(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.load([edge("Knows", "cat", "ann", id="Z"), edge("Knows", "cat", "bob", id="a")])

    with proving("EXP-01", "EXP-02"):
        assert rows_of(graph.handle.export()) == [
            '{"edge":"Knows","from":"cat","to":"ann","data":{"id":"Z","since":null}}',
            '{"edge":"Knows","from":"cat","to":"bob","data":{"id":"a","since":null}}',
            '{"edge":"Knows","from":"ann","to":"bob","data":{"id":"k1","since":2020}}',
            '{"edge":"Knows","from":"bob","to":"cat","data":{"id":"k2","since":null}}',
            '{"edge":"WorksAt","from":"ann","to":"acme","data":{"id":"w1"}}',
            '{"type":"Company","data":{"id":"acme","name":"acme"}}',
            '{"type":"Person","data":{"id":"ann","age":30,"email":"ann@x","name":"ann"}}',
            '{"type":"Person","data":{"id":"bob","age":31,"email":null,"name":"bob"}}',
            '{"type":"Person","data":{"id":"cat","age":null,"email":null,"name":"cat"}}',
        ]


NAMES: Final = (
    "10", "9", "a", "A", "aa", "a b", "ä", "z", "é", "e\u0301", "日本", "\uff61", "😀", "'", "''; DROP", '"', "%", "_",
    "\\", "a/b", "a,b", "a\u001fb", "null", "true", "a\nb", " lead", "trail ", "\u2028", "{}", "$1", "`x`", "-1", "\t",
)  # fmt: skip


@pytest.mark.requirement("EXP-02", "EXP-03")
def test_ids_of_any_text_are_sorted_by_their_characters_and_come_back(
    judged: Judged, engine: Engine, root: str
) -> None:
    """By code point: as UTF-8 bytes are, and neither as a person would sort them nor as UTF-16 units are."""
    graph = judged(SOCIAL, [person(name) for name in NAMES])
    graph.load([edge("Knows", one, other, id=f"to {other}") for one, other in zip(NAMES, NAMES[1:], strict=False)])
    export = graph.handle.export()

    with proving("EXP-02"):
        records = [json.loads(line) for line in rows_of(export)]
        assert [each["data"]["id"] for each in records if "type" in each] == sorted(NAMES)
        edges = [each["data"]["id"] for each in records if "edge" in each]
        assert edges == sorted(f"to {name}" for name in NAMES[1:])
    engine.init(root, SOCIAL)
    copy = engine.open(root)
    copy.load(export, "overwrite")
    with proving("EXP-03"):
        assert copy.export() == export


KEYED: Final = """
node ByText { key: String @key }
node ByBool { key: Bool @key }
node ByI32 { key: I32 @key }
node ByI64 { key: I64 @key }
node ByU32 { key: U32 @key }
node ByU64 { key: U64 @key }
node ByF32 { key: F32 @key }
node ByF64 { key: F64 @key }
node ByDate { key: Date @key }
node ByTime { key: DateTime @key }
node ByMood { key: enum(calm, busy) @key }
node ByPair {
  one: I32
  two: String
  @key(one, two)
}
node ByNothing { note: String? }
edge Near: ByI64 -> ByDate
edge Pairs: ByPair -> ByPair
"""
KEYS: Final = (
    ("ByText", ("", "a", "ä\u2028")),
    ("ByBool", (True, False)),
    ("ByI32", (0, -(2**31), 2**31 - 1)),
    ("ByI64", (2**53 + 1, -(2**63))),
    ("ByU32", (0, 2**32 - 1)),
    ("ByU64", (2**64 - 1,)),
    ("ByF32", (0.1, 1e10)),
    ("ByF64", (0.1, 1e16, 1e-7)),
    ("ByDate", ("2020-01-01", "1969-12-31")),
    ("ByTime", ("2026-01-02T03:04:05", "2026-01-02T03:04:05.678")),
    ("ByMood", ("calm",)),
)


@pytest.mark.requirement("EXP-03", "EXP-06")
def test_a_graph_with_keys_of_every_type_comes_back_with_the_same_ids(
    judged: Judged, engine: Engine, root: str
) -> None:
    graph = judged(KEYED, [node(name, key=key) for name, keys in KEYS for key in keys if key != ""])
    graph.load([node("ByPair", one=1, two='a","b'), node("ByPair", one=2, two=""), node("ByNothing", note="n")])
    ids = {key: [row["id"] for row in graph.handle.read(f"node:{key}")] for key in ("ByI64", "ByDate", "ByPair")}
    graph.load(
        [
            *(edge("Near", one, other) for one in ids["ByI64"] for other in ids["ByDate"]),
            edge("Pairs", *ids["ByPair"], id="p"),
        ]
    )
    export = graph.handle.export()
    engine.init(root, KEYED)
    copy = engine.open(root)

    loaded = copy.load(export, "overwrite")

    with proving("EXP-03"):
        assert loaded["nodes_loaded"] + loaded["edges_loaded"] == len(rows_of(export))
        assert copy.export() == export
    with proving("EXP-06"):
        copy.load(export, "merge")
        assert copy.export() == export, "loading it once more changes nothing"


@pytest.mark.requirement("EXP-03", "EXP-06")
def test_values_of_every_type_come_back_and_replace_what_was_there(judged: Judged, engine: Engine, root: str) -> None:
    things = [node("Thing", name=f"{number:02}", **{name: given}) for number, (name, given, _) in enumerate(TEXTS)]
    graph = judged(EVERYTHING, [*things, node("Thing", name="link", photo="s3://pictures/a")])
    graph.load([edge("Linked", "00", "01", id="e1"), edge("Linked", "01", "01")])
    export = graph.handle.export()
    engine.init(root, EVERYTHING)
    copy = engine.open(root)
    copy.load(lines(node("Thing", name="was here"), node("Thing", name="00", text="other")))

    copy.load(export, "overwrite")

    with proving("EXP-03", "EXP-06"):
        assert copy.export() == export
        assert copy.read("node:Thing") == graph.handle.read("node:Thing")


# Values that an engine may take or refuse; whatever it takes, it must be able to give back.
DOUBTFUL: Final = (
    '"single":1e39',
    '"single":-1e39',
    '"single":1e-50',
    '"double":1e309',
    '"double":NaN',
    '"double":Infinity',
    '"face":[1e39,0,0]',
    '"photo":"base64:"',
    '"photo":""',
    '"day":"9999-12-31"',
    '"day":2932897',
    '"moment":"0001-01-01T00:00:00"',
    '"moment":253402300800000',
    '"moment":"2026-01-02T03:04:60"',
    '"text":"\\ud800"',
    '"tags":["\\udc00"]',
    '"text":"\\u0000"',
    '"numbers":[null]',
)


@pytest.mark.requirement("EXP-06")
def test_whatever_a_write_accepted_can_be_exported_and_loaded(judged: Judged, engine: Engine, root: str) -> None:
    graph = judged(EVERYTHING, [node("Thing", name="sound")])
    handle, accepted = graph.handle, ["sound"]
    for number, text in enumerate(DOUBTFUL):
        try:
            handle.load(f'{{"type":"Thing","data":{{"name":"{number:02}",{text}}}}}')
            accepted.append(f"{number:02}")
        except EngineError as error:
            assert error.kind == "bad_request", f"{text} is accepted or a bad request, and not {error}"

    with proving("EXP-06"):
        export = handle.export()
        assert [json.loads(line)["data"]["id"] for line in rows_of(export)] == sorted(accepted)
        engine.init(root, EVERYTHING)
        copy = engine.open(root)
        copy.load(export, "overwrite")
        assert copy.export() == export
        assert copy.read("node:Thing") == handle.read("node:Thing")


@pytest.mark.requirement("EXP-04")
def test_an_export_can_be_limited_to_types_and_tables(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    everything = rows_of(graph.handle.export())
    people = [line for line in everything if line.startswith('{"type":"Person"')]
    knows = [line for line in everything if line.startswith('{"edge":"Knows"')]

    with proving("EXP-04"):
        assert rows_of(graph.handle.export(types=["Person"])) == people
        assert rows_of(graph.handle.export(tables=["node:Person"])) == people
        assert rows_of(graph.handle.export(tables=["edge:Knows"])) == knows
        assert rows_of(graph.handle.export(tables=["node:Person", "edge:Knows"])) == knows + people
        for name in ("Nobody", "person", "node:Person"):
            refused("bad_request", lambda name=name: graph.handle.export(types=[name]), f"the type {name}")  # type: ignore[misc]
        for name in ("node:Nobody", "Person", "edge:Person", "__manifest"):
            refused("bad_request", lambda name=name: graph.handle.export(tables=[name]), f"the table {name}")  # type: ignore[misc]
        refused("bad_request", lambda: graph.handle.export(types=["Person", "Nobody"]), "one unknown type of two")


@pytest.mark.requirement("EXP-05")
def test_an_export_is_of_one_branch_and_writes_nothing(judged: Judged, forge: ForgeOf, engine: Engine) -> None:
    graph = judged(SOCIAL, [person("ann")])
    graph.branch_create("b")
    graph.load([person("bob")], branch="b")
    disk = forge(graph.uri)
    main, branch, before = graph.handle.export("main"), graph.handle.export("b"), disk.listing()

    with proving("EXP-05"):
        assert graph.handle.export() == main and main != branch
        assert [json.loads(line)["data"]["id"] for line in rows_of(branch)] == ["ann", "bob"]
        bound = engine.open(graph.uri, read_only=True)
        assert (bound.export("b"), bound.export()) == (branch, main)
        assert disk.listing() == before
        refused("not_found", lambda: graph.handle.export("nobody"), "the export of a branch that is not there")


@pytest.mark.requirement("EXP-05")
@pytest.mark.parametrize("content", ["pending", "unreadable", "from the future"])
def test_an_export_works_while_sidecars_are_pending(
    judged: Judged, forge: ForgeOf, engine: Engine, content: str
) -> None:
    graph = judged(SOCIAL, [person("ann")])
    graph.audited = False
    disk = forge(graph.uri)
    export = graph.handle.export()
    if content == "pending":
        disk.crash_between_commit_and_publish(lambda: graph.handle.load(lines(person("crashed"))), writer_kind="Load")
    elif content == "unreadable":
        disk.write("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"{ not json")
    else:
        disk.write_sidecar(disk.sidecar(schema_version=99, tables=[disk.pin_of("node:Person")]))
    before = disk.listing()

    with proving("EXP-05"):
        assert engine.open(graph.uri, read_only=True).export() == export
        assert disk.listing() == before, "an export neither recovers nor removes"
