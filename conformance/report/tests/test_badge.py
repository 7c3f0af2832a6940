"""The badge: its words and colour for each verdict, its widths, and that it stays XML whatever an engine is called."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import pytest

from conformance.report.badge import COLOURS, badge_of, draw_badge, text_width
from conformance.report.tests.sample import ASSERTED, HOSTILE, SAMPLES, conforming

SVG = "{http://www.w3.org/2000/svg}"


def drawn(record: dict[str, Any]) -> tuple[str, str]:
    """The message and its colour."""
    root = ElementTree.fromstring(badge_of(record))
    _, message = root.iter(f"{SVG}text")
    _, _, field = root.iter(f"{SVG}rect")
    return message.text or "", field.attrib["fill"]


@pytest.mark.parametrize(
    ("sample", "message", "tone"),
    [
        ("conforming", f"conforms {ASSERTED}/{ASSERTED}", "good"),
        ("failing", "fails 5", "bad"),
        ("could_not_run", "could not run", "neutral"),
        ("nothing_tested", "nothing tested", "neutral"),
        ("stale", "stale known failures", "warning"),
    ],
)
def test_the_badge_says_the_verdict(sample: str, message: str, tone: str) -> None:
    assert drawn(SAMPLES[sample]()) == (message, COLOURS[tone])


def test_what_was_not_tried_is_missing_from_the_first_number_and_not_from_the_second() -> None:
    record = copy.deepcopy(conforming())
    record["summary"]["requirements"] |= {"passed": 200, "unsupported": ASSERTED - 200}
    assert drawn(record)[0] == f"conforms 200/{ASSERTED}"


def test_only_a_conforming_engine_has_a_green_badge() -> None:
    green = {name for name, sample in SAMPLES.items() if drawn(sample())[1] == COLOURS["good"]}
    assert green == {"conforming"}


def test_the_badge_has_a_name_for_those_who_do_not_see_it() -> None:
    root = ElementTree.fromstring(badge_of(conforming()))
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", f"omnigraph: conforms {ASSERTED}/{ASSERTED}")
    assert root.findtext(f"{SVG}title") == f"Granite 2.4.0: conforms {ASSERTED}/{ASSERTED} (Touchstone 0.1.0)"


def test_a_hostile_name_stays_text() -> None:
    root = ElementTree.fromstring(draw_badge("a<b>", HOSTILE, "#000", title=HOSTILE))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg",
        "title",
        "clipPath",
        "g",
        "rect",
        "text",
    }
    assert "<script>alert('caught')</script>" in (root.findtext(f"{SVG}title") or "")


def test_each_field_is_as_wide_as_its_text() -> None:
    root = ElementTree.fromstring(draw_badge("omnigraph", "fails 12", "#000", title="t"))
    _, label, message = (float(field.attrib["width"]) for field in root.iter(f"{SVG}rect"))
    assert float(root.attrib["width"]) == label + message
    assert abs(label - 14 - text_width("omnigraph")) <= 0.5
    assert abs(message - 14 - text_width("fails 12")) <= 0.5


def test_wide_letters_take_more_room() -> None:
    assert text_width("mmmm") > text_width("nnnn") > text_width("iiii") > 0
    assert text_width("石石") == 22
