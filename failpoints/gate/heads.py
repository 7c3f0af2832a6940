"""Heads and bodies of HTTP/1.1, as far as a proxy must understand them: how long a message is and what it asks for.

Nothing here changes a byte. Only what decides about framing, the conditions, the range, and whether it is a copy is
taken out of a head; the rest of it is passed on and never looked at. What a store might read otherwise is refused:
where two readers disagree about the end of a message, the rest of it would be a request that nobody has sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX: Final = 1 << 17
CONDITIONS: Final = (b"if-match", b"if-none-match")
_LINE_BYTES_MAX: Final = 1 << 12
# A first line, and lines that begin with a name and a colon.
_WELL_FORMED: Final = re.compile(rb"[^\r\n\0]*+(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\r\n\0]*+)*+")
# As many digits as a body can have that anybody sends: Python makes no number of thousands of them.
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")
_BLANKS: Final = b" \t"
_BREAKS: Final = re.compile(rb"[\r\n\0]")


class Malformed(Exception):
    """Not a message that can be passed on; says which rule is broken and shows nothing of it."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a body ends: after `length` bytes, in chunks, or (None, not chunked) with the connection."""

    length: int | None
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request. `raw` is all of it, and what is sent on."""

    raw: bytes
    method: str
    target: str
    framing: Framing
    expects_continue: bool
    closes: bool
    copies: bool
    conditions: tuple[tuple[str, str], ...]
    range: str = ""

    def without_conditions(self) -> bytes:
        """The head with If-Match and If-None-Match taken out."""
        lines = self.raw.split(b"\r\n")
        return b"\r\n".join(line for line in lines if line.partition(b":")[0].strip().lower() not in CONDITIONS)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The head of an answer."""

    raw: bytes
    status: int
    framing: Framing
    closes: bool


def request_head(raw: bytes) -> RequestHead:
    """Read the head of a request, up to and with its empty line."""
    line, fields = _fields(raw)
    parts = line.split(b" ")
    if len(parts) != 3 or not parts[0].isalpha() or parts[2] not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise Malformed("the first line is not a request of HTTP/1")
    conditions = tuple((name.decode(), fields[name].decode("latin-1")) for name in CONDITIONS if name in fields)
    framing = _framing(fields)
    return RequestHead(
        raw,
        parts[0].decode().upper(),
        parts[1].decode("latin-1"),
        Framing(0) if framing is None else framing,
        fields.get(b"expect", b"").lower() == b"100-continue",
        _closes(parts[2], fields),
        b"x-amz-copy-source" in fields,
        conditions,
        fields.get(b"range", b"").decode("latin-1"),
    )


def answer_head(raw: bytes, method: str) -> AnswerHead:
    """Read the head of an answer to a request of that method."""
    line, fields = _fields(raw)
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not (parts[1].isdigit() and len(parts[1]) == 3):
        raise Malformed("the first line is not an answer of HTTP/1")
    status = int(parts[1])
    framing = Framing(0) if method == "HEAD" or status < 200 or status in (204, 304) else _framing(fields)
    if framing is None:
        return AnswerHead(raw, status, Framing(None), True)
    return AnswerHead(raw, status, framing, _closes(parts[0], fields))


def _fields(raw: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    lines = raw[:-4].split(b"\r\n")
    fields: dict[bytes, bytes] = {}
    if not _WELL_FORMED.fullmatch(raw, 0, len(raw) - 4):
        raise _fault_of(lines)
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in fields and name in (b"content-length", b"transfer-encoding"):
            raise Malformed("the length of the body is given twice")
        fields[name] = value.strip(_BLANKS)
    return lines[0], fields


def _fault_of(lines: list[bytes]) -> Malformed:
    """What is wrong with a head, which is looked for only where something is: every request is waited for."""
    if any(map(_BREAKS.search, lines)):
        return Malformed("a line of the head does not end as one does")
    if any(b":" not in line for line in lines[1:]):
        return Malformed("a line of the head has no colon")
    return Malformed("a line of the head does not begin with a name")


def _framing(fields: dict[bytes, bytes]) -> Framing | None:
    coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if coding is not None:
        if length is not None or coding.lower() != b"chunked":
            raise Malformed("a body must be chunked or have a length, and not both")
        return Framing(None, chunked=True)
    if length is None:
        return None
    if not _LENGTH.fullmatch(length):
        raise Malformed("the length of the body is not a number")
    return Framing(int(length))


def _closes(version: bytes, fields: dict[bytes, bytes]) -> bool:
    connection = fields.get(b"connection", b"").lower()
    if version == b"HTTP/1.0":
        return connection != b"keep-alive"
    return b"close" in connection


class Body:
    """Where a body ends in bytes that pass by. `payload` counts what it carries, without the marks of chunks."""

    __slots__ = ("_chunk_left", "_framing", "_left", "_line", "_state", "done", "kept", "payload")

    def __init__(self, framing: Framing, *, keep: bool = False) -> None:
        self._framing = framing
        self._left = framing.length
        self._state = "size"
        self._line = bytearray()
        self._chunk_left = 0
        self.payload = 0
        self.done = framing.length == 0 and not framing.chunked
        self.kept: list[bytes] | None = [] if keep else None

    def take(self, data: bytes | bytearray, limit: int) -> int:
        """How many of the next bytes, at most `limit`, belong to the body. They are not offered again."""
        size = min(len(data), limit)
        if self._framing.chunked:
            return self._take_chunks(data, size)
        taken = size if self._left is None else min(size, self._left)
        if self._left is not None:
            self._left -= taken
            self.done = self._left == 0
        self._carry(data, 0, taken)
        return taken

    def _carry(self, data: bytes | bytearray, start: int, end: int) -> None:
        self.payload += end - start
        if self.kept is not None and end > start:
            self.kept.append(bytes(data[start:end]))

    def _take_chunks(self, data: bytes | bytearray, size: int) -> int:
        place = 0
        while place < size and not self.done:
            if self._state == "data":
                end = min(size, place + self._chunk_left)
                self._carry(data, place, end)
                self._chunk_left -= end - place
                place = end
                if self._chunk_left == 0:
                    self._state = "end of chunk"
                continue
            feed = data.find(b"\n", place, size)
            end = size if feed < 0 else feed + 1
            self._line += data[place:end]
            place = end
            if len(self._line) > _LINE_BYTES_MAX:
                raise Malformed("a line between chunks is too long")
            if feed >= 0:
                self._end_line(bytes(self._line))
                self._line.clear()
        return place

    def _end_line(self, whole: bytes) -> None:
        line = whole[:-2]
        if not whole.endswith(b"\r\n") or _BREAKS.search(line):
            raise Malformed("a line between chunks does not end as one does")
        match self._state:
            case "size":
                digits = line.partition(b";")[0].rstrip(_BLANKS)
                if not _CHUNK_SIZE.fullmatch(digits):
                    raise Malformed("the size of a chunk is not a number")
                self._chunk_left = int(digits, 16)
                self._state = "data" if self._chunk_left else "trailer"
            case "end of chunk":
                if line:
                    raise Malformed("a chunk is longer than its size")
                self._state = "size"
            case _:
                self.done = not line


_ERROR_CODES: Final = {
    400: "InvalidRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "SlowDown",
    500: "InternalError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "SlowDown",
    504: "RequestTimeout",
}


def made_answer(status: int, method: str, why: str, *, closes: bool = False) -> bytes:
    """An answer of the gate's own, in the words of S3."""
    code = _ERROR_CODES.get(status, "InternalError" if status >= 500 else "InvalidRequest")
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{why}</Message></Error>'.encode()
    )
    if method == "HEAD" or status < 200 or status in (204, 304):
        body = b""
    lines = [f"HTTP/1.1 {status} {code}", "Content-Type: application/xml"]
    if status >= 200 and status != 204:
        lines.append(f"Content-Length: {len(body)}")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body
