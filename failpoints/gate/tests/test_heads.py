"""Heads and bodies: where they end, however they are cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failpoints.gate.heads import Body, Framing, Malformed, answer_head, made_answer, request_head

CHUNKS = b"3\r\nabc\r\n0a;mark=1\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"


def head_of(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode()


@given(st.lists(st.integers(1, 9), max_size=60))
def test_a_chunked_body_ends_where_it_ends_in_whatever_pieces_it_comes(sizes: list[int]) -> None:
    body = Body(Framing(None, chunked=True), keep=True)
    left = bytearray(CHUNKS + b"NEXT")
    for size in [*sizes, *[len(left)] * 3]:
        if not body.done:
            del left[: body.take(left, size)]
    assert body.done and left == b"NEXT"
    assert body.payload == 13 and b"".join(body.kept or []) == b"abc0123456789"


def test_a_body_with_a_length_takes_no_more_than_that() -> None:
    body = Body(Framing(5))
    assert [body.take(b"1234567", 3), body.done, body.take(b"4567", 100), body.done] == [3, False, 2, True]


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    body = Body(Framing(None))
    assert body.take(b"123", 100) == 3 and not body.done


@pytest.mark.parametrize(
    "chunks",
    [
        *(b"x\r\n", b"-1\r\n", b"1\r\nabc\r\n", b"1" * 5000),
        # Numbers of Python that are none of HTTP, and lines that not every reader ends there.
        *(b"0x3\r\n", b"+3\r\n", b"1_0\r\n", b" 3\r\n", b"\r\n", b"1" * 17 + b"\r\n"),
        *(b"3\n", b"3;a\rb\r\n", b"1\r\na\n", b"1\r\na \r\n"),
    ],
)
def test_chunks_that_are_none_are_refused(chunks: bytes) -> None:
    with pytest.raises(Malformed):
        Body(Framing(None, chunked=True)).take(chunks, len(chunks))


@pytest.mark.parametrize(
    "raw",
    [
        head_of("GET /b/k"),
        head_of("GET /b k HTTP/1.1"),
        head_of("GET /b/k SPDY/3"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: 5", "Content-Length: 6"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: five"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"),
        head_of("PUT /b/k HTTP/1.1", "Transfer-Encoding: gzip"),
        head_of("PUT /b/k HTTP/1.1", "no colon here"),
        head_of("PUT /b/k HTTP/1.1x"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: 5", "Content-Length: 5"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: " + "9" * 19),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: " + "9" * 5000),
        head_of("PUT /b/k HTTP/1.1", "Content-Length: +5"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length : 5"),
        head_of("PUT /b/k HTTP/1.1", "Content-Length\t: 5"),
        head_of("PUT /b/k HTTP/1.1", " Content-Length: 5"),
        head_of("PUT /b/k HTTP/1.1", ": 5"),
        head_of("PUT /b/k HTTP/1.1", "X-Folded: a", " Content-Length: 5"),
        head_of("PUT /b/k HTTP/1.1", "X-Folded: a", "\tb"),
        head_of("PUT /b/k HTTP/1.1", "Host: h\nContent-Length: 5"),
        head_of("PUT /b/k HTTP/1.1", "Host: h\rContent-Length: 5"),
        head_of("PUT /b/k HTTP/1.1\nContent-Length: 5"),
        head_of("PUT /b/k HTTP/1.1", "Host: h\0"),
        head_of("PUT /b/k HTTP/1.1", "Transfer-Encoding: \x0bchunked"),
        head_of("PUT /b/k HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    ],
)
def test_heads_that_could_mean_two_things_are_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        request_head(raw)


def test_conditions_are_kept_as_they_were_sent_and_can_be_taken_out() -> None:
    raw = head_of("PUT /b/k HTTP/1.1", "Host: h", 'IF-MATCH: "AbC"', "if-none-match: *", "Content-Length: 0")
    head = request_head(raw)
    assert head.conditions == (("if-match", '"AbC"'), ("if-none-match", "*"))
    assert head.raw == raw
    assert head.without_conditions() == head_of("PUT /b/k HTTP/1.1", "Host: h", "Content-Length: 0")


def test_a_range_is_kept_as_it_was_sent() -> None:
    assert request_head(head_of("GET /b/k HTTP/1.1", "Host: h", "RANGE: bytes=0-99")).range == "bytes=0-99"
    assert request_head(head_of("GET /b/k HTTP/1.1", "Host: h")).range == ""


@pytest.mark.parametrize(
    ("method", "lines", "length", "closes"),
    [
        ("GET", ("HTTP/1.1 200 OK", "Content-Length: 7"), 7, False),
        ("HEAD", ("HTTP/1.1 200 OK", "Content-Length: 7"), 0, False),
        ("GET", ("HTTP/1.1 304 Not Modified", "Content-Length: 7"), 0, False),
        ("DELETE", ("HTTP/1.1 204 No Content",), 0, False),
        ("GET", ("HTTP/1.1 200 OK",), None, True),
        ("GET", ("HTTP/1.0 200 OK", "Content-Length: 7"), 7, True),
        ("GET", ("HTTP/1.0 200 OK", "Content-Length: 7", "Connection: keep-alive"), 7, False),
        ("GET", ("HTTP/1.1 200 OK", "Content-Length: 7", "Connection: Close"), 7, True),
    ],
)
def test_the_length_of_an_answer(method: str, lines: tuple[str, ...], length: int | None, closes: bool) -> None:
    answer = answer_head(head_of(*lines), method)
    assert (answer.framing, answer.closes) == (Framing(length), closes)


@pytest.mark.parametrize(
    "raw",
    [
        *(head_of("HTTP/1.1 OK"), head_of("hello"), head_of("HTTP/1.1 20")),
        head_of("HTTP/1.1 200 OK", "Content-Length: " + "9" * 5000),
        head_of("HTTP/1.1 200 OK", "Content-Length : 5"),
    ],
)
def test_an_answer_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        answer_head(raw, "GET")


def test_answers_of_the_gate_are_those_of_s3() -> None:
    raw = made_answer(503, "PUT", "why")
    head, _, body = raw.partition(b"\r\n\r\n")
    assert answer_head(head + b"\r\n\r\n", "PUT").framing == Framing(len(body))
    assert b"<Code>SlowDown</Code><Message>why</Message>" in body
    assert made_answer(412, "HEAD", "why").endswith(b"Content-Length: 0\r\n\r\n")
    assert b"Content-Length" not in made_answer(204, "PUT", "why")
    assert b"PreconditionFailed" in made_answer(412, "PUT", "why")
    assert b"InternalError" in made_answer(500, "PUT", "why")
