"""The driver protocol's schemas: they are schemas, they cover both ways of every operation, and they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from conformance import protocol

FILES = ("request.schema.json", "answer.schema.json", protocol.OPERATIONS_SCHEMA)
HELLO = {"seq": 1, "op": "hello", "args": {}}
ERROR = {"kind": "conflict", "code": "branch_exists", "message": "it is there", "details": {}}


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_a_schema_under_its_own_name(name: str) -> None:
    Draft202012Validator.check_schema(protocol.schema(name))
    assert protocol.schema(name)["$id"] == name


def test_every_operation_has_arguments_and_an_answer() -> None:
    definitions = protocol.schema(protocol.OPERATIONS_SCHEMA)["$defs"]
    answered = {name.removesuffix(".ok") for name in definitions if name.endswith(".ok")}
    assert answered == set(protocol.operations()) and "load" in answered


def test_every_reference_leads_somewhere() -> None:
    definitions = protocol.schema(protocol.OPERATIONS_SCHEMA)["$defs"]

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if "$ref" in node else set()
            return own.union(*map(references, node.values()))
        return set[str]().union(*map(references, node)) if isinstance(node, list) else set()

    assert {reference.removeprefix("#/$defs/") for reference in references(definitions)} <= definitions.keys()


@pytest.mark.parametrize(
    "request_",
    [
        HELLO,
        {"seq": 0, "op": "hello"},
        {"seq": 2, "op": "open", "args": {"uri": "s3://b/g", "branch": None, "read_only": True}},
        {"seq": 3, "op": "mutate", "args": {"handle": "h", "statements": [{"op": "insert", "type": "Person"}]}},
    ],
)
def test_a_request_of_the_protocol_passes(request_: dict[str, Any]) -> None:
    protocol.check_request(request_)


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ([], "message"),
        ({"op": "hello"}, "message"),
        ({"seq": "1", "op": "hello"}, "['seq']"),
        ({**HELLO, "extra": 1}, "message"),
        ({"seq": 1, "op": "fly"}, "op"),
        ({"seq": 1, "op": "open", "args": {}}, "args"),
        ({"seq": 1, "op": "load", "args": {"handle": "h", "data": "", "mode": "upsert"}}, "args['mode']"),
        ({"seq": 1, "op": "mutate", "args": {"handle": "h", "statements": [{"op": "drop"}]}}, "args['statements'][0]"),
    ],
)
def test_any_other_request_is_refused_at_its_place(request_: Any, place: str) -> None:
    with pytest.raises(protocol.ProtocolViolation) as refused:
        protocol.check_request(request_)
    assert place in str(refused.value)


def test_an_answer_is_ok_or_an_error_or_unsupported() -> None:
    protocol.check_answer(HELLO, {"seq": 1, "error": ERROR})
    protocol.check_answer(HELLO, {"seq": 1, "unsupported": "not in this engine"})
    protocol.check_answer(None, {"seq": None, "error": ERROR})


@pytest.mark.parametrize(
    "answer",
    [
        {"seq": 1},
        {"seq": 1, "ok": {}},
        {"seq": 2, "error": ERROR},
        {"seq": 1, "error": ERROR, "ok": {}},
        {"seq": 1, "error": {**ERROR, "kind": "oops"}},
        {"seq": 1, "error": {"kind": "conflict"}},
        {"seq": 1, "unsupported": ""},
        {"ok": {}},
        "ok",
    ],
)
def test_any_other_answer_is_refused(answer: Any) -> None:
    with pytest.raises(protocol.ProtocolViolation):
        protocol.check_answer(HELLO, answer)


def test_a_line_that_is_no_request_is_answered_with_an_error() -> None:
    with pytest.raises(protocol.ProtocolViolation):
        protocol.check_answer(None, {"seq": None, "unsupported": "what?"})


def test_a_predicate_is_checked_at_any_depth() -> None:
    def request(op: str) -> dict[str, Any]:
        where: dict[str, Any] = {"property": "age", "op": op, "value": 1}
        for _ in range(5):
            where = {"not": {"and": [where, {"all": True}]}}
        return {"seq": 1, "op": "mutate", "args": {"handle": "h", "statements": [_delete(where)]}}

    protocol.check_request(request("eq"))
    with pytest.raises(protocol.ProtocolViolation):
        protocol.check_request(request("about"))


def _delete(where: dict[str, Any]) -> dict[str, Any]:
    return {"op": "delete", "type": "Person", "where": where}
