"""Where everything in a TOML file stands: `tomllib` gives values, and a mistake is said with its line.

    lines_of('[a]\\nb = { c = 1 }')      {("a",): 1, ("a", "b"): 2, ("a", "b", "c"): 2}

A string in a list has its line too. The text has been read by `tomllib` before: here nothing is checked.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Final, NamedTuple

Path = tuple[str, ...]
_TOKEN: Final = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>\"{3}(?:\\[\s\S]|[^\\])*?\"{3,5}|'{3}[\s\S]*?'{3,5}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')
    |(?P<word>[A-Za-z0-9_+-]+)
    |(?P<mark>[][{}=.,\n])""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def lines_of(text: str) -> dict[Path, int]:
    """The line of every table, of every key, and of every string in a list."""
    return _Scan(list(_tokens(text))).found


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "", match[0]
        if kind != "comment":
            # A key may be written with escapes: what it is called is what TOML makes of them.
            text_of_it = str(tomllib.loads(f"it = {token}")["it"]) if kind == "string" else token
            yield _Token("name" if kind in ("string", "word") else token, text_of_it, line)
        line += token.count("\n")


class _Scan:
    """Reads the tokens from the first to the last, and keeps what names what."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = [*tokens, _Token("end", "", 0)]
        self._at = 0
        self.found: dict[Path, int] = {}
        table: Path = ()
        while (kind := self._kind()) != "end":
            if kind == "[":
                table = self._header()
            elif kind == "name":
                self._pair(table)
            else:
                self._at += 1

    def _kind(self) -> str:
        return self._tokens[self._at].kind

    def _keep(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self.found.setdefault(path[:end], line)

    def _header(self) -> Path:
        while self._kind() == "[":
            self._at += 1
        line, path = self._tokens[self._at].line, self._dotted()
        while self._kind() not in ("\n", "end"):
            self._at += 1
        self._keep(path, line)
        return path

    def _dotted(self) -> Path:
        names = []
        while self._kind() in ("name", "."):
            if self._kind() == "name":
                names.append(self._tokens[self._at].text)
            self._at += 1
        return tuple(names)

    def _pair(self, table: Path) -> None:
        line = self._tokens[self._at].line
        path = (*table, *self._dotted())
        self._keep(path, line)
        if self._kind() == "=":
            self._at += 1
            self._value(path)

    def _value(self, path: Path) -> None:
        opened = self._kind()
        self._at += 1
        if opened == "name":
            while self._kind() in ("name", "."):  # A number may have a dot in it.
                self._at += 1
        elif opened in ("{", "["):
            while self._kind() not in ("}", "]", "end"):
                if self._kind() != "name":
                    self._at += 1
                elif opened == "{":
                    self._pair(path)
                else:
                    self._keep((*path, self._tokens[self._at].text), self._tokens[self._at].line)
                    self._at += 1
            self._at += 1
