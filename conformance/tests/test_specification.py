"""The pages of the specification are what the registry and the format's constants say, today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.registry import requirements
from conformance.specification import pages, write
from reference.format import manifest as reference_manifest
from reference.format import stamp as reference_stamp

SPEC = Path(__file__).parents[2] / "docs" / "spec"


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_page_is_not_stale(name: str) -> None:
    path = SPEC / name
    words = "run `python -m conformance.specification docs/spec`"
    assert path.exists(), f"{name} is missing: {words}"
    assert path.read_text(encoding="utf-8") == pages()[name], f"{name} is stale: {words}"


def test_there_is_no_page_that_nobody_generates() -> None:
    assert {path.name for path in SPEC.glob("*.md")} == pages().keys()


def test_every_requirement_has_one_anchor() -> None:
    anchors = [found for text in pages().values() for found in re.findall(r'<a id="([^"]+)">', text)]

    assert sorted(anchors) == sorted(each.lower() for each in requirements())


def test_every_link_between_pages_leads_somewhere() -> None:
    found = pages()

    targets = {target for text in found.values() for target in re.findall(r"\]\(([^)#]+)\)", text)}

    assert targets <= found.keys()


def test_the_constants_of_the_pages_are_those_of_the_engine() -> None:
    """The auditor and the engine decode with constants of their own; the pages would show a difference."""
    text = pages()["format.md"]

    assert f"`{reference_stamp.INTERNAL_SCHEMA_VERSION}`" in text
    for field in reference_manifest.MANIFEST_SCHEMA:
        assert f"| `{field.name}` | `{field.type}` | {'yes' if field.nullable else 'no'} |" in text


def test_writing_removes_a_page_that_is_no_more(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("gone", encoding="utf-8")

    write(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == pages().keys()
