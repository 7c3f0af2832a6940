"""The pieces of an input with their numbers, and a guess at the tables that they touch.

The guess decides which committed keys are read along with the input. It may name too many tables, never knowingly too
few; what the pieces really hold is known once they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from reference.pipeline.inputs import Piece, Place, as_stream, cut, find_files, numbered
from reference.pipeline.scan import CountItem, count_piece
from reference.schema.types import Catalog

RunTasks = Callable[[str, Sequence[Any], Callable[[Any], Any]], list[Any]]


def found_input(
    place: Place,
    catalog: Catalog,
    run: RunTasks,
    before: Sequence[Piece] = (),
    streams: frozenset[str] = frozenset(),
) -> tuple[list[Piece], frozenset[str]]:
    """Find the files and count the records. `streams` are files of `before` that turned out to be no lines of records:
    they become one piece each, and all records are numbered anew."""
    pieces = as_stream(before, streams) if streams else cut(place, find_files(place))
    uncounted = [index for index, piece in enumerate(pieces) if piece.file.form == "json" and not piece.records]
    items = [CountItem(pieces[index], place) for index in uncounted]
    named: set[str] = set()
    for index, (piece, names) in zip(uncounted, run("count records", items, count_piece), strict=True):
        pieces[index] = piece
        named |= names
    if any(piece.file.form == "records" for piece in pieces):
        return numbered(pieces), frozenset(catalog.table_keys())
    guess = {key for piece in pieces for key in _typed_by(piece, catalog)}
    guess |= {f"node:{name}" for name in named & catalog.nodes.keys()}
    guess |= {edge.table_key for edge in map(catalog.edge_by_name, named) if edge is not None}
    return numbered(pieces), frozenset(guess)


def _typed_by(piece: Piece, catalog: Catalog) -> Iterator[str]:
    """The table whose rows a Parquet file says it holds, if there is one."""
    if piece.file.kind == "node" and piece.file.type_name in catalog.nodes:
        yield f"node:{piece.file.type_name}"
    edge = catalog.edge_by_name(piece.file.type_name) if piece.file.kind == "edge" else None
    if edge is not None:
        yield edge.table_key
