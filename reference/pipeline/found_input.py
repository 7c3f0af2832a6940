"""The pieces of an input with their numbers, and a guess at the tables that they touch.

The guess decides which committed keys are read along with the input. It may name too many tables, never knowingly too
few; what the pieces really hold is known once they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reference.pipeline.inputs import Piece, Place, as_stream, cut, find_files, numbered
from reference.pipeline.scan import CountItem, count_piece
from reference.schema.types import Catalog, NodeType

RunTasks = Callable[[str, Sequence[Any], Callable[[Any], Any]], list[Any]]


@dataclass(frozen=True)
class Guess:
    """The tables that an input may touch, and those of them in which it may say the ids."""

    touched: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()

    def __or__(self, other: Guess) -> Guess:
        return Guess(self.touched | other.touched, self.fixed | other.fixed)


def found_input(
    place: Place,
    catalog: Catalog,
    run: RunTasks,
    before: Sequence[Piece] = (),
    streams: frozenset[str] = frozenset(),
) -> tuple[list[Piece], Guess]:
    """Find the files and count the records. `streams` are files of `before` that turned out to be no lines of records:
    they become one piece each, and all records are numbered anew."""
    pieces = as_stream(before, streams) if streams else cut(place, find_files(place))
    uncounted = [index for index, piece in enumerate(pieces) if piece.file.form == "json" and not piece.records]
    items = [CountItem(pieces[index], place) for index in uncounted]
    types: set[str] = set()
    fixed: set[str] = set()
    for index, counted in zip(uncounted, run("count records", items, count_piece), strict=True):
        pieces[index] = counted.piece
        types |= counted.types
        fixed |= counted.fixed
    if any(piece.file.form == "records" for piece in pieces):
        return numbered(pieces), Guess(frozenset(catalog.table_keys()), frozenset(catalog.table_keys()))
    typed = [(piece, key) for piece in pieces for key in _typed_by(piece, catalog)]
    touched = {key for _, key in typed} | _tables(types, catalog)
    ids = {key for piece, key in typed if piece.file.has_ids} | _tables(fixed, catalog) | _keyed(touched, catalog)
    return numbered(pieces), Guess(frozenset(touched), frozenset(ids))


def _tables(names: set[str], catalog: Catalog) -> set[str]:
    found = {f"node:{name}" for name in names & catalog.nodes.keys()}
    return found | {edge.table_key for edge in map(catalog.edge_by_name, names) if edge is not None}


def _keyed(table_keys: set[str], catalog: Catalog) -> set[str]:
    """The tables whose keys make the ids."""
    owners = map(catalog.type_of, table_keys)
    return {owner.table_key for owner in owners if isinstance(owner, NodeType) and owner.key}


def _typed_by(piece: Piece, catalog: Catalog) -> Iterator[str]:
    """The table whose rows a Parquet file says it holds, if there is one."""
    if piece.file.kind == "node" and piece.file.type_name in catalog.nodes:
        yield f"node:{piece.file.type_name}"
    edge = catalog.edge_by_name(piece.file.type_name) if piece.file.kind == "edge" else None
    if edge is not None:
        yield edge.table_key
