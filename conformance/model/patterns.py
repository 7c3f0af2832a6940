r"""The patterns of `@check`: text that an engine in any language can evaluate, and evaluates alike [VAL-15].

Portable is what a regular expression without memory can do. So there is no looking around, no back reference, no
condition, no atomic group and no quantifier that never gives back; a set has no sets in it. `$` and `\z` are the very
end of the text, which Python calls `\Z`, except that `$` ends a line where the flag `m` is on.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

from conformance.model.errors import Refusal, bad_request

_PART: Final = re.compile(
    r"""
      \\.                                           # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]                    # a set
    | \(\?(?:P<[A-Za-z_][A-Za-z0-9_]*>|:)           # a group, with a name or without
    | \(\?(?=[imsx-])([imsx]*)(?:-([imsx]+))?[:)]   # flags, of a group or of all that follows
    | (?:[*+?]|\{[0-9]*,?[0-9]*\})\+                # a quantifier that gives nothing back
    | \(\?                                          # any other group
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_SET_OPERATORS: Final = ("[", "&&", "--", "~~")


def compile_pattern(text: str) -> re.Pattern[str]:
    """The pattern to search with, or a refusal of one that is broken or means different things in different engines."""
    parts: list[str] = []
    lines = [False]  # Whether `$` ends a line, for each group that is open.
    for match in _PART.finditer(text):
        part = match[0]
        if _is_strange(part):
            raise _refusal(text, f"{part!r} is not portable")
        if part == ")" and len(lines) > 1:
            lines.pop()
        elif part.startswith("("):
            by_lines = "m" in (match[1] or "") or (lines[-1] and "m" not in (match[2] or ""))
            lines[-1:] = [by_lines] if part.endswith(")") else [lines[-1], by_lines]
        parts.append(r"\Z" if part == r"\z" or (part == "$" and not lines[-1]) else part)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile("".join(parts))
    except (re.error, OverflowError, RecursionError) as broken:
        raise _refusal(text, str(broken)) from None


def _is_strange(part: str) -> bool:
    if part.startswith("[") and len(part) > 1:
        inside = re.sub(r"\\.", "", part[1:-1], flags=re.DOTALL)
        return any(each in inside for each in _SET_OPERATORS)
    is_back_reference = part.startswith("\\") and part[1:].isdigit()
    is_possessive = len(part) > 1 and part.endswith("+") and part[0] in "*+?{"
    return is_back_reference or is_possessive or part == "(?"


def _refusal(text: str, why: str) -> Refusal:
    return bad_request("invalid_schema", f"the pattern {text!r} cannot be evaluated: {why}")
