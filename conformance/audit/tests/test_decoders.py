r"""The auditor's own decoders, by examples from the specification."""

from __future__ import annotations

import ast
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from conformance.audit import CODES
from conformance.audit.names import fnv1a_32, fnv1a_64, is_ulid, table_path
from conformance.audit.places import InvalidUri, parse_root
from conformance.audit.rules import compile_pattern, is_id_of
from conformance.audit.schema import compact


@pytest.mark.requirement("LAY-02", "LAY-03")
def test_tables_are_found_by_the_hash_of_the_type_name() -> None:
    vectors = {"": "cbf29ce484222325", "Person": "40d76f1f51639ec0", "WorksAt": "844eefbe5068b644"}
    assert {name: fnv1a_64(name) for name in vectors} == vectors
    assert table_path("node:Person") == "nodes/40d76f1f51639ec0"
    assert table_path("edge:Knows") == "edges/602a25a3bd0b455b"
    assert table_path("Person") is None
    assert fnv1a_32("node:Person") == 3227219152


@pytest.mark.requirement("LIN-01")
def test_a_ulid_has_26_letters_of_its_alphabet() -> None:
    assert is_ulid("01M7GZSBDT48R0RR90Q1TGM0GK")
    assert not is_ulid("01M7GZSBDT48R0RR90Q1TGM0GI")
    assert not is_ulid("91M7GZSBDT48R0RR90Q1TGM0GK")
    assert not is_ulid(None)


@pytest.mark.requirement("LAY-11")
def test_compact_json_keeps_what_is_inside_of_strings_and_numbers_as_they_are() -> None:
    assert compact('{\n  "a b": [ 1e-05, "x\\" : y" ],\n  "c": 0.00001\n}') == '{"a b":[1e-05,"x\\" : y"],"c":0.00001}'


@pytest.mark.requirement("VAL-04")
def test_a_pattern_ends_where_the_text_ends() -> None:
    pattern = compile_pattern("^[a-z$]+$")
    assert pattern is not None
    assert pattern.search("a$")
    assert not pattern.search("a\n")
    assert compile_pattern("[[:alpha:]]") is None
    assert compile_pattern("(") is None


@pytest.mark.requirement("VAL-14")
@pytest.mark.parametrize(
    ("text", "values", "is_right"),
    [
        ("2020-01-02", (date(2020, 1, 2),), True),
        ("18263", (date(2020, 1, 2),), False),
        ("2020-01-02T03:04:05", (datetime(2020, 1, 2, 3, 4, 5),), True),
        ("1.5", (1.5,), True),
        ("true", (True,), True),
        ('["nl",1000]', ("nl", 1000), True),
        ('["nl","1000"]', ("nl", 1000), False),
        ('["nl", 1000]', ("nl", 1000), False),
        ('["é",true]', ("é", True), True),
        ('["2020-01-02",1]', (date(2020, 1, 2), 1), True),
        ('["nl"]', ("nl", 1000), False),
        ("nl", ("nl", 1000), False),
        (None, ("nl",), False),
    ],
)
def test_the_id_of_a_key(text: str | None, values: tuple[Any, ...], is_right: bool) -> None:
    assert is_id_of(text, values) is is_right


@pytest.mark.requirement("STO-01", "STO-02")
def test_roots_and_settings() -> None:
    assert parse_root("/a/../b/").uri == "/b"
    assert parse_root("file:///b").uri == "/b"
    env = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b", "AWS_SECRET_ACCESS_KEY": "hush"}
    root = parse_root("s3://bucket/a/b/", {**env, "AWS_S3_FORCE_PATH_STYLE": "yes"})
    assert (root.uri, root.bucket, root.prefix) == ("s3://bucket/a/b", "bucket", "a/b")
    assert root.storage_options["aws_endpoint"] == "http://b"
    assert root.storage_options["allow_http"] == "true"
    assert root.storage_options["aws_virtual_hosted_style_request"] == "false"
    assert "hush" not in repr(root)
    assert "hush" not in root.redact("the key hush was refused at http://me:you@host/x")
    assert "you" not in root.redact("the key hush was refused at http://me:you@host/x")
    assert root.holds("s3://bucket/a/b/nodes/x") and not root.holds("s3://bucket/a/bc")
    with pytest.raises(InvalidUri):
        parse_root("file://relative")


def test_every_code_is_used_and_every_code_that_is_used_is_known() -> None:
    """The table of codes is what the auditor can say, no more and no less."""
    package = Path(__file__).parents[1]
    used: set[str] = set()
    for path in package.glob("*.py"):
        if path.name != "findings.py":
            tree = ast.parse(path.read_text())
            used |= {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)} & set(CODES)
    assert used == set(CODES)
