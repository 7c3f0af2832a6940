"""The three schema files: their exact text, and the contract between them."""

from __future__ import annotations

import json

import pytest

from reference.errors import Conflict, Internal
from reference.format.schema_files import SchemaState, check_contract, parse_state, schema_file_texts
from reference.schema import compile_schema
from reference.schema.tests.samples import BEFORE_EVOLUTION, SOCIAL, SOCIAL_HASH


def texts(source: str = SOCIAL) -> tuple[str, str, str]:
    pg, ir, state = schema_file_texts(source, compile_schema(source)).values()
    return pg, ir, state


@pytest.mark.requirement("LAY-10", "LAY-11")
def test_the_files_are_written_in_order_and_as_the_release_writes_them() -> None:
    files = schema_file_texts(SOCIAL, compile_schema(SOCIAL))
    assert list(files) == ["_schema.pg", "_schema.ir.json", "__schema_state.json"]
    assert files["_schema.pg"] == SOCIAL
    assert files["__schema_state.json"] == (
        f'{{\n  "format_version": 1,\n  "schema_ir_hash": "{SOCIAL_HASH}",\n  "schema_identity_version": 1\n}}'
    )
    ir = files["_schema.ir.json"]
    assert ir.startswith('{\n  "ir_version": 1,\n  "interfaces": [\n    {\n      "name": "Named",\n')
    assert ir.endswith('      "annotations": [],\n      "properties": [],\n      "constraints": []\n    }\n  ]\n}')


@pytest.mark.requirement("SCH-13")
def test_files_that_agree_give_the_catalog() -> None:
    assert check_contract(*texts()) == compile_schema(SOCIAL)
    assert check_contract(*texts("")).table_keys() == []


@pytest.mark.requirement("SNP-10")
@pytest.mark.parametrize("source", [BEFORE_EVOLUTION, "node", ""])
def test_a_source_edited_by_hand_is_a_conflict(source: str) -> None:
    with pytest.raises(Conflict) as caught:
        check_contract(source, *texts()[1:])
    assert caught.value.code == "schema_source_drift"


@pytest.mark.requirement("SNP-10")
def test_a_comment_in_the_source_is_no_drift() -> None:
    assert check_contract("// reviewed\n" + SOCIAL, *texts()[1:]) == compile_schema(SOCIAL)


@pytest.mark.requirement("SCH-13")
def test_an_ir_that_the_state_does_not_record_is_a_conflict() -> None:
    pg, ir, _ = texts()
    with pytest.raises(Conflict) as caught:
        check_contract(pg, ir, texts(BEFORE_EVOLUTION)[2])
    assert caught.value.code == "schema_state_mismatch"
    forged = ir.replace('"Integer": 150', '"Integer": 151')
    with pytest.raises(Conflict):
        check_contract(pg, forged, texts()[2])


@pytest.mark.requirement("LAY-11")
def test_the_state_reads_back() -> None:
    assert parse_state(texts()[2]) == SchemaState(SOCIAL_HASH, 1, 1)


@pytest.mark.requirement("SCH-13")
@pytest.mark.parametrize("text", ["", "[]", "null", "7", "{}", '{"format_version": 1}', "[" * 100_000])
def test_a_state_that_cannot_be_read_is_internal(text: str) -> None:
    with pytest.raises(Internal) as caught:
        parse_state(text)
    assert caught.value.code == "schema_state_invalid"


@pytest.mark.requirement("SCH-13")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format_version": 2}, "unsupported_schema_format"),
        ({"format_version": True}, "unsupported_schema_format"),
        ({"schema_identity_version": 2}, "unsupported_schema_format"),
        ({"schema_ir_hash": None}, "schema_state_invalid"),
    ],
)
def test_a_state_of_another_format_is_refused(change: dict[str, object], code: str) -> None:
    with pytest.raises(Internal) as caught:
        parse_state(json.dumps(json.loads(texts()[2]) | change))
    assert caught.value.code == code
