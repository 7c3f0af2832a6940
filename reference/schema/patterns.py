r"""`@check` patterns: the subset that the release's regex engine and Python's read alike.

The format's patterns are written for an engine without lookaround and back references, in which `$` is the very end of
the text. Python has those, and its `$` also matches before a last newline. A pattern that the two read differently is
refused when the schema is compiled, not discovered in someone's data [VAL-15]; `$` and `\z` are translated.
"""

from __future__ import annotations

import re
from functools import lru_cache

# What may follow `(?` and means the same in both: flags, a plain group, a named group.
_PORTABLE_GROUP = re.compile(r"\(\?(?:[imsx-]+[:)]|:|P<[A-Za-z_])")
# Python reads `a*+` as a repetition that never gives back; an engine that does not backtrack, as one of another.
_POSSESSIVE = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+")
_MULTILINE_FLAG = re.compile(r"\(\?[isx]*m")


class PatternError(ValueError):
    """The pattern cannot be evaluated, or not by every engine that shares the graph."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, or say why it cannot be."""
    translated: list[str] = []
    multiline = _MULTILINE_FLAG.search(pattern) is not None
    in_class = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        pair = pattern[position : position + 2]
        if char == "\\":
            if not in_class and pair[1:].isdigit():
                raise PatternError("back references are not portable")
            translated.append(r"\Z" if pair == r"\z" else pair)
            position += len(pair)
            continue
        if in_class:
            if char == "[" or pair in ("&&", "--", "~~"):
                raise PatternError("sets within sets are not portable")
            in_class = char != "]"
        elif char == "[":
            # `]` directly after the opening is a member of the set, not its end.
            opening = re.match(r"\[\^?\]?", pattern[position:])
            assert opening is not None
            translated.append(opening.group())
            position += opening.end()
            in_class = True
            continue
        elif pair == "(?" and not _PORTABLE_GROUP.match(pattern, position):
            raise PatternError("lookaround and conditional groups are not portable")
        elif _POSSESSIVE.match(pattern, position):
            raise PatternError("possessive repetitions are not portable")
        elif char == "$" and not multiline:
            char = r"\Z"
        translated.append(char)
        position += 1
    try:
        return re.compile("".join(translated))
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from error
