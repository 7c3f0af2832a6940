"""Sidecar files and the stamp: what is written, what is read, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reference.errors import BadRequest, Internal
from reference.format.sidecar import Pin, Registration, Sidecar, Tombstone, decode_sidecar
from reference.format.stamp import read_stamp, refuse_other_generations

OPERATION = "01M7GZSZTDJD97MA655G1X2CDR"


def _body(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "schema_version": 2,
        "operation_id": OPERATION,
        "started_at": "1794792816461337",
        "branch": None,
        "actor_id": "bea",
        "writer_kind": "Load",
        "tables": [
            {"table_key": "edge:Knows", "table_path": "s3://g/x", "expected_version": 5, "post_commit_pin": 6},
        ],
    }
    return {**body, **changes}


@pytest.mark.requirement("REC-02", "LAY-09")
def test_a_sidecar_is_written_as_the_public_engine_writes_it() -> None:
    sidecar = Sidecar(OPERATION, 1794792816461337, None, "bea", "Load", (Pin("edge:Knows", "s3://g/x", 5, 6),))
    assert sidecar.encode() == json.dumps(_body(), indent=2)


@pytest.mark.requirement("REC-02")
def test_every_field_survives_a_round_trip() -> None:
    sidecar = Sidecar(
        OPERATION,
        7,
        "feat/one",
        None,
        "SchemaApply",
        (Pin("node:A", "/g/nodes/a", 1, 2, confirmed_version=3, table_branch="feat/one"),),
        merge_source_commit_id="01B",
        additional_registrations=(Registration("node:B", "nodes/b"),),
        tombstones=(Tombstone("node:C", 9),),
    )
    assert decode_sidecar(OPERATION, sidecar.encode()) == sidecar


@pytest.mark.requirement("REC-09")
def test_a_version_1_sidecar_is_read() -> None:
    assert decode_sidecar(OPERATION, json.dumps(_body(schema_version=1))).schema_version == 1


@pytest.mark.requirement("REC-10", "REC-11")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "null",
        json.dumps(_body(schema_version=3)),
        json.dumps(_body(schema_version="2")),
        json.dumps(_body(schema_version=True)),
        json.dumps(_body(operation_id="01OTHER")),
        json.dumps(_body(writer_kind="Unheard")),
        json.dumps(_body(tables=None)),
        json.dumps(_body(tables={})),
        json.dumps(_body(tables=[{"table_key": "node:A"}])),
        json.dumps(_body(tables=[dict(_body()["tables"][0], expected_version=-1)])),
        json.dumps(_body(tombstones=[{"table_key": "node:A"}])),
        json.dumps({key: value for key, value in _body().items() if key != "started_at"}),
    ],
)
def test_what_cannot_be_understood_is_refused_with_the_operations_name(text: str) -> None:
    with pytest.raises(Internal) as refused:
        decode_sidecar(OPERATION, text)
    assert refused.value.code == "sidecar_unreadable"
    assert refused.value.details["operation_id"] == OPERATION


@pytest.mark.requirement("STM-01", "STM-02")
@pytest.mark.parametrize(
    ("stored", "stamp"), [(None, 1), ("abc", 1), ("", 1), ("-4", 1), ("4.0", 1), ("4", 4), ("3", 3), ("5", 5), ("٤", 1)]
)
def test_a_missing_or_garbled_stamp_reads_as_the_oldest(stored: str | None, stamp: int) -> None:
    metadata = {} if stored is None else {"omnigraph:internal_schema_version": stored}
    assert read_stamp(metadata) == stamp


@pytest.mark.requirement("STM-01", "STM-03", "STM-04")
@pytest.mark.parametrize(
    ("stamp", "code"), [(1, "stamp_older"), (2, "stamp_older"), (3, "stamp_older"), (5, "stamp_newer")]
)
def test_every_generation_but_the_fourth_is_refused_with_what_to_do(stamp: int, code: str) -> None:
    refuse_other_generations(4)
    with pytest.raises(BadRequest) as refused:
        refuse_other_generations(stamp)
    assert (refused.value.code, refused.value.details["stamp"]) == (code, stamp)
    assert refused.value.hint is not None
    assert ("export" in refused.value.hint) is (code == "stamp_older")
