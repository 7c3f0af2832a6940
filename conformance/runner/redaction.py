"""Command lines and an engine's words without their secrets: what a report and a trace may say.

A name decides, not a value: nobody can tell a password by its looks. So it is better to hide one value too many. What
was hidden is shown as `…`, and nothing else in a command line is changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "…"
_NAMED: Final = (
    r"(?:[\w.-]*(?:secret|token|passw|passphrase|pwd|credential|key|bearer|signature|cookie|auth(?!or))[\w.-]*"
    r"|(?:[\w.-]*[._-])?(?:pass|sig))"
)
# One word of a shell: parts with and without quotes, one after the other.
_VALUE: Final = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s'"\\])+"""
_WHOLE_NAME: Final = r"(?<![\w.-])"
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # A header: its value has spaces, and ends with the quote around it.
        r"""(authorization["']?\s*:\s*)[^'"]+""",
        rf"""({_WHOLE_NAME}{_NAMED}(?:\s*=\s*|["']\s*:\s*)){_VALUE}""",
        rf"""(['"]\s*{_NAMED}\s*:\s*)[^'"]+""",
        rf"((?:--header|-H)(?:\s+|=){_NAMED}:){_VALUE}",
        # A secret may begin with a dash; with two begins the next flag.
        rf"({_WHOLE_NAME}--?{_NAMED}\s+)(?!--){_VALUE}",
        r"""(--(?:[\w-]+-)?user(?:\s+|=)['"]?[^\s:'"]+:)[^\s'"]+""",
        # The user and the password of a URL. A password may hold a slash, although it should not.
        r"""(\b[a-z][a-z0-9+.-]*://)(?:[^\s/@'"]+|[^\s/@:'"]*:[^\s'"]*)(?=@)""",
        r"\b()(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    )
)


# What an engine says is full of keys and of names with a colon after them. So in its words only those names count that
# nothing but a secret has, and the parameters by which a URL is signed.
_TELLING: Final = (
    r"(?:[\w.-]*(?:secret|token|passw|passphrase|credential|signature|bearer"
    r"|(?:access|account|private|api)[_-]?key)[\w.-]*|AWSAccessKeyId|sig|pwd)"
)
_NAME_IN_WORDS: Final = rf"(?:(?<![\w.-])|(?<=%26)|(?<=%3F)){_TELLING}"
# What stands between a name and its value, in JSON, in JSON inside of a text, in a URL, and in the Debug of Rust.
_BETWEEN: Final = r"""\\?["']?\s*(?:[:=]|%3D)\s*(?:Some\()?\[?\s*"""
_IN_WORDS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"""(authorization{_BETWEEN}\\?["']?)[^'"\n]+""",
        rf"(<{_TELLING}>)[^<]+",
        # A value in quotes goes up to the same quote again.
        rf"""({_NAME_IN_WORDS}{_BETWEEN}(?P<quote>\\?["']))(?:(?!(?P=quote))(?:\\.|[^\n]))+(?=(?P=quote))""",
        rf"""({_NAME_IN_WORDS}{_BETWEEN}\\?["']?)[^\s'"&;,<>\\]+""",
        r"""(\bbearer\s+)(?!(?:token|auth\w*|of|is|was)\b)[^\s'"\\,;]+""",
        r"""(\b[a-z][a-z0-9+.-]*://)[^\s/@'"]+(?=@)""",
        r"\b()(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    )
)


def words_without_secrets(text: str) -> str:
    """What an engine said, without signatures of URLs, authorizations, users of URLs and values of secrets."""
    for pattern in _IN_WORDS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def value_without_secrets(value: Any) -> Any:
    """A JSON value with every text in it cleared so."""
    if isinstance(value, str):
        return words_without_secrets(value)
    if isinstance(value, Mapping):
        return {name: value_without_secrets(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [value_without_secrets(each) for each in value]
    return value


def without_secrets(text: str) -> str:
    """A command line without the values of what is called like a secret: variables, flags, headers, users of URLs."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text
