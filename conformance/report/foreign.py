"""Text that an engine wrote, made fit to be shown.

An engine's words are hostile until shown otherwise: they may hold terminal escapes, characters that turn the direction
of the text around, halves of characters, and far too much. Markup in it is the template's business, which escapes all.
"""

from __future__ import annotations

import re
from typing import Final

SHOWN_LENGTH_MAX: Final = 20_000

_TERMINAL_ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Controls except tab and newline, lone surrogates, non-characters, and the marks that reorder text.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def visible(text: str) -> str:
    """The text with nothing in it that acts instead of being read. It is well-formed UTF-8, HTML and XML text."""
    without_escapes = _TERMINAL_ESCAPE.sub("", text.replace("\r\n", "\n"))
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", without_escapes)


def shortened(text: str) -> str:
    """The beginning and the end of a text that is too long for a page; the record keeps all of it."""
    if len(text) <= SHOWN_LENGTH_MAX:
        return text
    half = SHOWN_LENGTH_MAX // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n\n[… {left_out:,} characters are left out here; report.json has them …]\n\n{text[-half:]}"
