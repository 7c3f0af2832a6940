"""The guide names every writer and every pair, in the words that the code has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from failpoints.pairs.pairs import PAIRS
from failpoints.writers import GROUPS, WRITERS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "faults.md"


@pytest.mark.skipif(not GUIDE.exists(), reason="the guides are in a checkout, and not in an installed package")
def test_the_guide_has_every_writer_and_every_pair() -> None:
    text = GUIDE.read_text(encoding="utf-8")

    rows = [f"| `{writer.name}` | {writer.sentence} |" for writer in WRITERS.values()]
    rows += [f"| `{pair.name}` | {pair.sentence} |" for pair in PAIRS.values()]
    missing = [row for row in rows if row not in text]
    assert missing + [name for name in GROUPS if f"`{name}`" not in text] == []
