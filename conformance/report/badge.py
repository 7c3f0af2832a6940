"""The badge: a flat SVG of two fields that needs no font of its own, for a README.

The width of each field is that of its text in Verdana, and `textLength` holds any other font to it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from html import escape
from types import MappingProxyType
from typing import Any, Final

from conformance.report.foreign import visible
from conformance.report.words import VERDICTS, badge_message, engine_title

LABEL: Final = "omnigraph"
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"good": "#2a7d4f", "bad": "#b3352b", "warning": "#b45309", "neutral": "#6b7280"}
)

_PADDING: Final = 7
_SIZE: Final = 11
# Advance widths of Verdana, in thousandths of the font size.
_WIDTHS: Final[Mapping[str, int]] = MappingProxyType(
    {
        character: width
        for width, characters in {
            274: "il",
            344: "j",
            352: " f",
            364: ".,:;",
            394: "t!",
            421: "I",
            427: "r",
            454: "/-()",
            521: "cs",
            525: "z",
            592: "kvxy",
            596: "e",
            601: "a",
            607: "o",
            623: "bdgpq",
            633: "hnu",
            636: "0123456789_",
            818: "w",
            973: "m",
        }.items()
        for character in characters
    }
)
_WIDTH_OTHER: Final = 720
_WIDTH_WIDE: Final = 1000

_TEMPLATE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{said}">
<title>{title}</title>
<clipPath id="round"><rect width="{width}" height="20" rx="3"/></clipPath>
<g clip-path="url(#round)">
<rect width="{label_width}" height="20" fill="#3f444d"/>
<rect x="{label_width}" width="{message_width}" height="20" fill="{colour}"/>
</g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11" text-rendering="geometricPrecision">
<text x="{label_x}" y="14" textLength="{label_length}">{label}</text>
<text x="{message_x}" y="14" textLength="{message_length}">{message}</text>
</g>
</svg>
"""


def badge_of(report: Mapping[str, Any]) -> str:
    """The badge of a run."""
    tone = VERDICTS[report["verdict"]].tone
    message = badge_message(report)
    title = f"{engine_title(report)}: {message} (Touchstone {report['suite_version']})"
    return draw_badge(LABEL, message, COLOURS[tone], title=title)


def draw_badge(label: str, message: str, colour: str, *, title: str) -> str:
    """A badge with any text on it."""
    label, message, title = visible(label), visible(message), visible(title)
    label_length, message_length = text_width(label), text_width(message)
    label_width, message_width = (round(length) + 2 * _PADDING for length in (label_length, message_length))
    return _TEMPLATE.format(
        width=label_width + message_width,
        label_width=label_width,
        message_width=message_width,
        label_x=_PADDING,
        message_x=label_width + _PADDING,
        label_length=f"{label_length:.1f}",
        message_length=f"{message_length:.1f}",
        colour=colour,
        said=escape(f"{label}: {message}"),
        title=escape(title),
        label=escape(label),
        message=escape(message),
    )


def text_width(text: str) -> float:
    """How wide a text is at the badge's size, in pixels."""
    return sum(map(_advance, text)) * _SIZE / 1000


def _advance(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return _WIDTH_WIDE
    return _WIDTHS.get(character, _WIDTH_OTHER)
