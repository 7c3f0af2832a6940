"""Exchanges for people, and uploads that were left open."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import obstore
import pytest
from obstore.exceptions import BaseError
from rich.console import Console

from failpoints.gate import Exchange, Gate, Port, Rule, incomplete_uploads, print_trace, table_of
from fixtures.stores.moto import MotoStore

PLAIN = Exchange(
    number=7,
    owner="engine",
    method="PUT",
    verb="PUT",
    bucket="b",
    key="g/__manifest/tree/feat/_versions/18446744073709551610.manifest",
    prefix="",
    role="manifest version",
    table="__manifest",
    branch="feat",
    version=5,
    conditions=(("if-none-match", "*"),),
    keys=(),
    bytes_in=1200,
    bytes_out=0,
    status=200,
    answered=None,
    outcome="cut",
    started=1.0,
    ended=1.0125,
    listed=0,
)


def but(**changes: Any) -> Exchange:
    return dataclasses.replace(PLAIN, **changes)


def printed(*exchanges: Exchange, width: int = 220) -> str:
    file = io.StringIO()
    print_trace(exchanges, Console(file=file, width=width))
    return file.getvalue()


def test_a_line_says_what_happened() -> None:
    line = " ".join(printed(PLAIN).splitlines()[1].split())
    assert line.startswith("7 engine PUT manifest version __manifest on feat v5 ")
    assert line.endswith("if-none-match=* 200 → - 1200/0 12.5 cut")


def test_nothing_is_left_out_in_a_narrow_console() -> None:
    text = "".join(printed(PLAIN, width=80).split())
    assert text.count("…") == 1, "only a long key is shortened"
    assert "1200/0" in text and "if-none-" in text and "match=*" in text


def test_listings_deletes_and_requests_in_flight_have_their_words() -> None:
    text = printed(
        but(verb="LIST", role="listing", key="", prefix="g/nodes", table="", branch="", version=None, listed=12),
        but(verb="DELETE", role="bulk delete", key="", keys=("a", "b"), table="", branch="", version=None),
        but(outcome="held", status=None, ended=None, key="[odd] [/key]", table="", version=None),
    )
    assert "g/nodes (12 keys)" in text and "2 keys" in text and "[odd] [/key]" in text
    assert table_of([PLAIN, PLAIN]).row_count == 2


def test_a_record_as_json_is_plain() -> None:
    body = PLAIN.as_json()
    assert body["conditions"] == [["if-none-match", "*"]] and body["keys"] == []
    assert list(body) == [field.name for field in dataclasses.fields(Exchange)]


@pytest.mark.parametrize(
    ("verb", "status", "durable", "applied"),
    [("PUT", 200, True, True), ("PUT", 412, True, False), ("PUT", None, True, False), ("GET", 200, False, False)]
    + [(verb, 204, True, True) for verb in ("COPY", "DELETE", "PUT_PART", "INITIATE_UPLOAD", "ABORT_UPLOAD")]
    + [(verb, 200, False, False) for verb in ("HEAD", "LIST", "LIST_UPLOADS", "OTHER")],
)
def test_what_can_change_the_store_and_what_did(verb: str, status: int | None, durable: bool, applied: bool) -> None:
    assert (but(verb=verb, status=status).durable, but(verb=verb, status=status).applied) == (durable, applied)


def test_an_upload_is_open_until_it_is_completed_or_aborted() -> None:
    first, second, third = (but(number=number, verb="INITIATE_UPLOAD", key=f"k{number}") for number in (1, 2, 3))
    part = but(number=4, verb="PUT_PART", key="k1")
    complete, abort = but(number=5, verb="COMPLETE_UPLOAD", key="k1"), but(number=6, verb="ABORT_UPLOAD", key="k2")
    failed = but(number=7, verb="COMPLETE_UPLOAD", key="k3", status=500)
    assert incomplete_uploads([first, second, third, part, complete, abort, failed]) == (third,)
    assert incomplete_uploads([but(verb="INITIATE_UPLOAD", status=503)]) == ()


@pytest.mark.s3
def test_a_real_upload_in_parts_is_seen_and_one_that_was_cut_off_is_open(
    gate: Gate, port: Port, moto_store: MotoStore
) -> None:
    client, key = moto_store.objects(endpoint=port.endpoint, retries=0), moto_store.fresh_prefix()
    content = b"x" * (11 * 2**20)
    obstore.put(client, key, content, use_multipart=True, chunk_size=5 * 2**20)
    verbs = [each.verb for each in gate.exchanges()]
    assert verbs[0] == "INITIATE_UPLOAD" and verbs[-1] == "COMPLETE_UPLOAD" and verbs.count("PUT_PART") == 3
    assert sum(each.bytes_in for each in gate.exchanges() if each.verb == "PUT_PART") == len(content)
    assert {each.role for each in gate.exchanges()} == {"upload"}
    assert incomplete_uploads(gate.exchanges()) == ()
    assert bytes(obstore.get(client, key).bytes()) == content

    before = gate.mark()
    gate.arm(Rule("refuse", verbs=("COMPLETE_UPLOAD", "ABORT_UPLOAD"), times=None))
    with pytest.raises(BaseError):
        obstore.put(client, f"{key}-cut", content, use_multipart=True, chunk_size=5 * 2**20)
    assert [each.key for each in incomplete_uploads(gate.exchanges(since=before))] == [f"{key}-cut"]


@pytest.mark.s3
def test_a_copy_and_a_rename_are_seen_as_such(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    client, key = moto_store.objects(endpoint=port.endpoint), moto_store.fresh_prefix()
    obstore.put(client, f"{key}/_schema.pg.staging", b"x")
    obstore.copy(client, f"{key}/_schema.pg.staging", f"{key}/_schema.pg")
    copy = gate.exchanges()[-1]
    assert (copy.verb, copy.key, copy.role, copy.applied) == ("COPY", f"{key}/_schema.pg", "schema file", True)
