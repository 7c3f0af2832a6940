"""The matrix as a table: the names go down, the writers across, and each cell says what became of it.

Names that nobody reached are left out, and so are writers that reached none: there is nothing to see there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.table import Table
from rich.text import Text

from failpoints.matrix.spots import KILL, NOT_REACHED, WRONG, Action, SpotResult

_STYLES: Final = {WRONG: "bold red", NOT_REACHED: "dim"}


def matrix(results: Iterable[SpotResult], action: Action = KILL) -> Table:
    """Writer by name, for one action: forward, back, new, old, not reached, or WRONG."""
    cells = {(each.spot.name, each.spot.writer): each.word for each in results if each.spot.action == action}
    seen = {place for place, word in cells.items() if word != NOT_REACHED}
    writers = list(dict.fromkeys(writer for name, writer in cells if any(place[1] == writer for place in seen)))
    table = Table("name", *writers, title=f"what became of a writer at each name: {action}", title_justify="left")
    for name in sorted({name for name, _ in seen}):
        words = [cells.get((name, writer), NOT_REACHED) for writer in writers]
        table.add_row(name, *(Text("·" if word == NOT_REACHED else word, _STYLES.get(word, "")) for word in words))
    return table
