"""JUnit files of several stores as one, which is what a CI looks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree


def join_junit(parts: Iterable[Path], whole: Path) -> None:
    """Put the test suites of all parts into one file, in order; the parts go. One that was not written is left out."""
    joined = ElementTree.Element("testsuites", name="touchstone")
    for part in parts:
        if part.is_file():
            joined.extend(ElementTree.parse(part).getroot().findall("testsuite"))
            part.unlink()
    ElementTree.ElementTree(joined).write(whole, encoding="utf-8", xml_declaration=True)
