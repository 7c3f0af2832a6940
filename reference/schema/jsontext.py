"""JSON text byte for byte as the release writes it: hashes are taken over it, and files are compared with it [LAY-11].

Python differs from it in floats only: `1e-05` there, `0.00001` here; `1e+16` in both.
"""

from __future__ import annotations

import json
from typing import Any


def float_text(value: float) -> str:
    """The shortest digits that read back as the same number."""
    digits, exponent, power = repr(value).partition("e")
    if not exponent:
        return digits
    if int(power) == -5:
        whole, _, fraction = digits.partition(".")
        sign = "-" if whole.startswith("-") else ""
        return f"{sign}0.0000{whole.lstrip('-')}{fraction}"
    return f"{digits}e{int(power):+d}".replace("e+0", "e+")


def compact_json(value: Any) -> str:
    """Without any space."""
    return _text(value, None, "")


def pretty_json(value: Any) -> str:
    """Two spaces for each level, no newline at the end."""
    return _text(value, "  ", "\n")


def _text(value: Any, indent: str | None, newline: str) -> str:
    if isinstance(value, float):
        return float_text(value)
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = newline if indent is None else newline + indent
    if isinstance(value, list):
        parts, (opening, closing) = [_text(each, indent, inner) for each in value], "[]"
    else:
        colon = ":" if indent is None else ": "
        opening, closing = "{}"
        parts = [
            json.dumps(key, ensure_ascii=False) + colon + _text(each, indent, inner) for key, each in value.items()
        ]
    return opening + inner + f",{inner}".join(parts) + newline + closing
