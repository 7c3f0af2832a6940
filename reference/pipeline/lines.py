"""The lines of a piece of a JSON file: how many records they should be, and which of them are broken.

A line is a record unless it says otherwise. One that is broken is that one record; but where a value goes on behind
the end of its line, or a line holds two values, lines say nothing about records, and the file has to be read whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reference.errors import BadRequest
from reference.format.records import BLACK, DECODER, FieldTwice

_TYPE_NAME = re.compile(rb'"(?:type|edge)"\s*:\s*"(\w+)"')
_BLANK = b" \t\r"


@dataclass(frozen=True)
class Raw:
    """One value of a JSON file: where it begins, and its text or why it has none."""

    offset: int
    text: bytes
    refusal: BadRequest | None = None


class NotLines(Exception):
    """The lines of a piece are no records of their own."""


def named_types(data: bytes) -> frozenset[str]:
    """Every name that may be the type of a record in some JSON: more than there are, rather than fewer."""
    return frozenset(name.decode(errors="replace") for name in set(_TYPE_NAME.findall(data)))


def may_fix_ids(data: bytes) -> bool:
    """Whether a record may say its id. Who spells the name with escapes is found out when the records are read."""
    return b'"id"' in data


def nonblank_lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line and line.strip(_BLANK)]


def placed_lines(data: bytes) -> Iterator[Raw]:
    """The same lines with the places where they begin."""
    offset = 0
    for line in data.split(b"\n"):
        if line.strip(_BLANK):
            yield Raw(offset, line)
        offset += len(line) + 1


def count_lines(data: bytes) -> tuple[int, int]:
    """How many lines of a piece are not blank, which is how many records it should have, and how many newlines."""
    return len(nonblank_lines(data)), len(newlines(data))


def newlines(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where the lines of some text end."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))


def broken_line(data: bytes, line: Raw, *, ends_here: bool) -> BadRequest | None:
    """Why a line is no record, or None if it is one. `ends_here`: nothing of the file is behind this piece.

    A value that is not complete at the end of its line may go on behind it: as much is looked at as it takes to tell.
    """
    end = line.offset + len(line.text)
    while True:
        text = data[line.offset : end].decode(errors="surrogateescape")
        begin = BLACK.search(text)
        assert begin is not None, "a blank line is no record"
        try:
            _, stop = DECODER.raw_decode(text, begin.start())
        except (ValueError, RecursionError) as error:
            is_cut = getattr(error, "pos", 0) >= len(text.rstrip(" \t\r\n"))
            if not is_cut or (end >= len(data) and ends_here):
                return not_json(error, line.text)
            if end >= len(data):
                raise NotLines from None
            end = min(len(data), line.offset + 4 * (end - line.offset) + 1)
            continue
        if len(text[:stop].encode(errors="surrogateescape")) > len(line.text) or BLACK.search(
            line.text.decode(errors="surrogateescape"), stop
        ):
            raise NotLines
        return None if _is_utf8(line.text) else not_json(ValueError(), line.text)


def stream(data: bytes) -> list[Raw]:
    """The values of a stream, wherever their lines end. What follows a broken value is looked for on the next line."""
    text = data.decode(errors="surrogateescape")
    found: list[Raw] = []
    position = offset = seen = 0
    while begin := BLACK.search(text, position):
        start = begin.start()
        offset, seen = offset + len(text[seen:start].encode(errors="surrogateescape")), start
        try:
            _, position = DECODER.raw_decode(text, start)
            found.append(Raw(offset, text[start:position].encode()))
        except (ValueError, RecursionError) as error:
            position = text.find("\n", start) + 1 or len(text)
            raw = text[start:position].encode(errors="surrogateescape")
            found.append(Raw(offset, raw, not_json(error, raw)))
    return found


def not_json(error: Exception, text: bytes) -> BadRequest:
    """What is wrong with a text, in the reader's words."""
    cause = str(error)
    if not _is_utf8(text):
        cause = "the text is not UTF-8"
    elif isinstance(error, RecursionError):
        cause = "it is nested too deep"
    code = "duplicate_field" if isinstance(error, FieldTwice) else "invalid_json"
    return BadRequest(f"is not valid JSON: {cause}", code=code)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
