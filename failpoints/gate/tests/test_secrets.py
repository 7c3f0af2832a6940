"""Nothing of a credential is ever kept, printed or raised."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from datetime import timedelta

import lance
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import BaseError
from rich.console import Console

from failpoints.gate import Exchange, Gate, GateTimeout, Port, Rule, print_trace
from failpoints.gate.tests.scripted import OK, always, answer_from, connected, scripted_store
from fixtures.stores.moto import MotoStore
from fixtures.stores.s3_server import SECRET_KEY

TOKEN = "session-token-0123456789"
SIGNATURE = "5ca1ab1e5ca1ab1e"


def shown(exchanges: tuple[Exchange, ...]) -> str:
    """Everything that leaves the gate about exchanges."""
    console = Console(file=io.StringIO(), width=200)
    print_trace(exchanges, console)
    printed = console.file
    assert isinstance(printed, io.StringIO)
    return "\n".join([json.dumps([each.as_json() for each in exchanges]), repr(exchanges), printed.getvalue()])


def test_headers_and_signed_queries_are_not_kept() -> None:
    raw = (
        f"PUT /b/k?X-Amz-Signature={SIGNATURE}&X-Amz-Credential=AKIA&uploadId=secret-upload&partNumber=1 HTTP/1.1\r\n"
        f"Authorization: AWS4-HMAC-SHA256 Signature={SIGNATURE}\r\nx-amz-security-token: {TOKEN}\r\n"
        "If-Match: etag\r\nContent-Length: 1\r\n\r\nx"
    ).encode()
    with (
        scripted_store(always(OK)) as endpoint,
        Gate(endpoint) as gate,
        connected(gate.port("a").endpoint) as (to, stream),
    ):
        to.sendall(raw)
        assert answer_from(stream) == (OK, b"")
        armed = gate.arm(Rule("cut", owner="nobody"))
        with pytest.raises(GateTimeout) as late:
            armed.wait(0)
        text = "\n".join([shown(gate.exchanges()), str(late.value), repr(gate), repr(armed)])
        assert "if-match" in text and "PUT_PART" in text
        for secret in (SIGNATURE, TOKEN, "AKIA", "secret-upload", "Authorization", "AWS4", "X-Amz"):
            assert secret.lower() not in text.lower()


def test_a_listing_that_is_signed_in_its_url_is_a_listing_and_keeps_nothing_of_it() -> None:
    signed = f"X-Amz-Credential=AKIA&X-Amz-Security-Token={TOKEN}&X-Amz-Signature={SIGNATURE}"
    with (
        scripted_store(always(OK)) as endpoint,
        Gate(endpoint) as gate,
        connected(gate.port("a").endpoint) as (to, stream),
    ):
        to.sendall(f"GET /b?prefix=g/__recovery/&{signed} HTTP/1.1\r\n\r\n".encode())
        assert answer_from(stream) == (OK, b"")
        (exchange,) = gate.exchanges()
        assert (exchange.verb, exchange.role, exchange.prefix) == ("LIST", "listing", "g/__recovery/")
        for secret in (SIGNATURE, TOKEN, "AKIA", "X-Amz"):
            assert secret.lower() not in shown(gate.exchanges()).lower()


def test_an_error_answer_of_the_gate_shows_nothing_of_the_request() -> None:
    with Gate("http://127.0.0.1:1") as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(f"GET /b/k?X-Amz-Signature={SIGNATURE} HTTP/1.1\r\nAuthorization: {TOKEN}\r\n\r\n".encode())
        head, body = answer_from(stream)
        assert head.startswith(b"HTTP/1.1 502 ")
        assert SIGNATURE.encode() not in head + body and TOKEN.encode() not in head + body


@pytest.mark.s3
def test_real_clients_leave_no_credential_behind(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    options = moto_store.storage_options_at(port.endpoint) | {"aws_session_token": TOKEN}
    lance.write_dataset(pa.table({"id": [1]}), f"{moto_store.fresh_root()}/t.lance", storage_options=options)
    client = moto_store.objects(endpoint=port.endpoint)
    obstore.put(client, "signed", b"x")
    url = obstore.sign(client, "GET", "signed", timedelta(minutes=1))
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.read() == b"x"
    gate.arm(Rule("answer", status=403))
    with pytest.raises(BaseError):
        obstore.head(client, "signed")
    text = shown(gate.exchanges())
    assert "signed" in text and "table version" in text
    for secret in (SECRET_KEY, TOKEN, "AWS4-HMAC", "Signature", "Credential"):
        assert secret.lower() not in text.lower()
