"""Command lines without their secrets: what a report and a trace may say of how an engine was started.

A name decides, not a value: nobody can tell a password by its looks. So it is better to hide one value too many. What
was hidden is shown as `…`, and nothing else in a command line is changed.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "…"
_NAMED: Final = (
    r"(?:[\w.-]*(?:secret|token|passw|passphrase|pwd|credential|key|bearer|signature|auth(?!or))[\w.-]*"
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
        rf"({_WHOLE_NAME}--?{_NAMED}\s+)(?!-){_VALUE}",
        # The user and the password of a URL. A password may hold a slash, although it should not.
        r"""(\b[a-z][a-z0-9+.-]*://)(?:[^\s/@'"]+|[^\s/@:'"]*:[^\s'"]*)(?=@)""",
        r"\b()(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    )
)


def without_secrets(text: str) -> str:
    """A command line without the values of what is called like a secret: variables, flags, headers, users of URLs."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text
