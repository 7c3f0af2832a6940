"""The cut sweep for people: a line for each cell, a table for each writer, and what was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import AT_A_REQUEST

# Of the cells of a writer, so many may go unreached: a lease that is not renewed this time, and its like.
UNREACHED_SHARE_MAX: Final = 0.2


def line_of(result: CellResult) -> str:
    """One cell on one line, as markup."""
    verdict = "[green]ok[/]" if result.wrong is None else "[bold red]WRONG[/]"
    if not result.reached and result.wrong is None:
        verdict = "[yellow]not reached[/]"
    cut = escape(str(result.cut)) + (f", then its recovery {escape(str(result.second))}" if result.second else "")
    state = f"{result.scene or '-'}: {result.world or '?'}" + (f", {result.direction}" if result.kinds else "")
    what = "killed" if result.killed else "went on" if result.cut.moment == "failed" else "cut"
    return f"{verdict} [bold]{result.writer}[/] {what} {cut}; {escape(state)} [dim]{result.seconds:.1f} s[/]"


def show_cell(result: CellResult, console: Console) -> None:
    console.print(line_of(result), highlight=False, soft_wrap=True)
    if result.wrong is not None:
        ids, because = result.wrong
        console.print(f"      broke {', '.join(ids)} because {escape(because)}", highlight=False, soft_wrap=True)


def where_of(result: CellResult) -> str:
    """Which cell it was, in words."""
    return f"{result.writer} {result.cut}" + (f", then its recovery {result.second}" if result.second else "")


def counts_of(results: Sequence[CellResult]) -> dict[str, dict[str, int]]:
    """How many cells each writer had, and what became of them."""
    names = dict.fromkeys(result.writer for result in results)
    return {name: _counts([result for result in results if result.writer == name]) for name in names}


def summary(results: Sequence[CellResult]) -> Table:
    """The same as a table, a row for each writer and one for all of them."""
    counts = counts_of(results)
    table = Table("writer", box=None, pad_edge=False)
    for name in _counts([]):
        table.add_column(name, justify="right")
    for name, row in counts.items():
        table.add_row(name, *map(str, row.values()))
    if len(counts) > 1:
        table.add_section()
        table.add_row("all", *map(str, _counts(results).values()))
    return table


def tried(results: Sequence[CellResult]) -> int:
    """How many cells came to the request that was to be cut. The end of a call always comes, and is no such cell."""
    return sum(result.reached and (result.second or result.cut).moment in AT_A_REQUEST for result in results)


def unreached(results: Sequence[CellResult]) -> list[str]:
    """What to say of writers many of whose cells did not come to their cut: for those, little or nothing was tried."""
    said = []
    for name in dict.fromkeys(result.writer for result in results):
        cells = [result for result in results if result.writer == name]
        missed = sum(not result.reached for result in cells)
        if not tried(cells):
            said.append(f"{name}: no request of it was cut, so nothing was tried")
        elif missed > UNREACHED_SHARE_MAX * len(cells):
            said.append(
                f"{name}: {missed} of {len(cells)} cells were not reached. The engine does not make the same requests "
                "each time, and this sweep has tried less than it says"
            )
    return said


def _counts(results: Sequence[CellResult]) -> dict[str, int]:
    return {
        "cells": len(results),
        "kills": sum(result.killed for result in results),
        "double": sum(result.second is not None for result in results),
        "old": sum(result.world in ("old", "half") for result in results),
        "new": sum(result.world == "new" for result in results),
        "forward": sum(result.direction == "forward" for result in results),
        "back": sum(result.direction == "back" for result in results),
        "uploads left": sum(result.uploads_left for result in results),
        "not reached": sum(not result.reached for result in results),
        "wrong": sum(result.wrong is not None for result in results),
    }
