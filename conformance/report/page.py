"""The page: one self-contained HTML file that says what a run found, the bad news first.

It asks for nothing from anywhere, works without JavaScript, and runs no script but its own: everything from the record
is escaped by the template, and the page's policy names the one script and the one style sheet by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from conformance.report import views
from conformance.report.foreign import shortened, visible
from conformance.report.words import OUTCOMES, badge_message, engine_title, words_of

_PAGE: Final = Path(__file__).parent / "page"
_QUOTED_CODE: Final = re.compile(r"`([^`\n]+)`")


def page_of(report: Mapping[str, Any], *, files: tuple[str, ...] = ()) -> str:
    """The page of a run. `files` are the other files of the report that lie beside it."""
    style, script = _part("style.css"), _part("filter.js")
    return (
        _environment()
        .get_template("index.html")
        .render(
            report=report,
            verdict=words_of(report["verdict"], report["summary"]),
            badge_message=badge_message(report),
            engine_title=engine_title(report),
            outcomes=OUTCOMES,
            requirement_counts=views.counts(report["summary"]["requirements"]),
            test_counts=views.counts(report["summary"]["tests"]),
            faults=views.faults(report),
            failures=views.failures(report),
            untested_failures=views.untested_failures(report),
            known_lines={
                state: [line for line in (report["known_failing"] or {"lines": []})["lines"] if line["state"] == state]
                for state in ("stale", "failed", "by_chance", "not_run")
            },
            known_tests=[test for test in report["tests"] if test["outcome"] == "known_failing"],
            set_aside=views.set_aside(report),
            parity=views.parity(report),
            asked_stores=views.asked_stores(report),
            without_test=views.without_test(report),
            measured=views.measured(report),
            groups=views.groups(report),
            files=files,
            style=Markup(style),
            script=Markup(script),
            policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'",
        )
    )


def duration(seconds: float) -> str:
    """How long something took, for people: `0.04 s`, `12.3 s`, `3 min 12 s`, `1 h 4 min`."""
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def prose(text: str) -> Markup:
    """A sentence in which words between backticks are code."""
    return Markup(_QUOTED_CODE.sub(r"<code>\1</code>", str(escape(visible(shortened(text))))))


def name(text: str) -> Markup:
    """The name of a test, which a narrow screen may break between its words only."""
    return Markup(re.sub(r"([_/.]|::|\[)(?=\w)", r"\1<wbr>", str(escape(visible(text)))))


def command(line: str) -> Markup:
    """A command line, which a narrow screen may break between its words, and not at a hyphen."""
    words = re.split("([ \n]+)", str(escape(visible(line))))
    return Markup("".join(f"<span>{word}</span>" if word.strip() else word for word in words))


def moment(timestamp: str) -> str:
    """A point in time as people write it."""
    return f"{timestamp[:10]} {timestamp[11:19]} UTC"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_fit_to_show,
    )
    environment.filters |= {
        "command": command,
        "duration": duration,
        "moment": moment,
        "name": name,
        "path": lambda path: quote(path, safe="/"),
        "place": views.place,
        "prose": prose,
        "shortened": shortened,
    }
    return environment


def _fit_to_show(value: object) -> object:
    """Every value that the template prints passes here, so that no place in it can forget to."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _part(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
