"""Several stores in one run, for people: what held on each, and which requirements were not the same everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console


def show_stores(rows: Sequence[Mapping[str, Any]], console: Console, missing: Sequence[str] = ()) -> None:
    """A line for each store, and one for each requirement whose outcome depends on the store. Nothing for one store."""
    names = list(dict.fromkeys(name for row in rows for name in row["stores"]))
    if len(names) + len(missing) < 2:
        return
    for line in (*_of_each(rows, names), *(f"on {name}: nothing was tested" for name in missing), *_different(rows)):
        console.print(line, highlight=False)


def _of_each(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    lines = []
    for name in names:
        counted = Counter(row["stores"][name]["outcome"] for row in rows)
        words = ", ".join(f"{outcome.replace('_', ' ')} {number}" for outcome, number in counted.most_common())
        lines.append(f"on {name}: {words}")
    return lines


def _different(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Requirements by where they have which outcome, those alike in one line."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        by_outcome: dict[str, list[str]] = {}
        for name, cell in row["stores"].items():
            by_outcome.setdefault(cell["outcome"].replace("_", " "), []).append(name)
        if len(by_outcome) > 1:
            words = "; ".join(f"{outcome} on {', '.join(names)}" for outcome, names in sorted(by_outcome.items()))
            alike.setdefault(words, []).append(row["id"])
    return [f"{words}: {', '.join(ids)}" for words, ids in alike.items()]
