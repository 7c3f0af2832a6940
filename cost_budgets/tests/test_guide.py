"""The guide names every operation and every measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from cost_budgets.counters import MEASURES
from cost_budgets.operations import OPERATIONS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "cost.md"
# The verbs of uploads are said in words.
_UPLOADS = ("INITIATE_UPLOAD", "PUT_PART", "COMPLETE_UPLOAD", "ABORT_UPLOAD", "LIST_UPLOADS", "OTHER")


@pytest.mark.skipif(not GUIDE.exists(), reason="the guides are in a checkout, and not in an installed package")
def test_the_guide_has_every_operation_and_every_measure() -> None:
    text = GUIDE.read_text(encoding="utf-8")

    operations = [each.name for each in OPERATIONS.values() if f"| `{each.name}` | {each.sentence} |" not in text]
    measures = [name for name in MEASURES if name not in _UPLOADS and f"`{name}`" not in text]
    assert (operations, measures) == ([], [])
