"""Shares of pinned tables for tasks to read: fragments, a bounded number of rows at a time.

A share pickles; credentials are in no repr of it. `_rowid` is Lance's stable row id, and blobs come as descriptors
until `blob_contents` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from reference.format.export_lines import BlobValue, blob_values
from reference.pipeline.pinned import PinnedGraph, PinnedTable, open_pinned

if TYPE_CHECKING:
    from lance import LanceDataset, LanceFragment

TASK_ROWS: Final = 500_000
ROW_ID: Final = "_rowid"
ROW_UPDATED_AT: Final = "_row_last_updated_at_version"


@dataclass(frozen=True)
class Share:
    """Some fragments of a table at its pinned version, or some of the rows of one: from one place to another."""

    table: PinnedTable
    fragment_ids: tuple[int, ...]
    storage_options: Mapping[str, str] = field(repr=False)
    places: tuple[int, int] | None = None

    def open(self) -> LanceDataset:
        return open_pinned(self.table, self.storage_options)

    def of(self, fragment_id: int) -> Share:
        """One fragment of the share."""
        return Share(self.table, (fragment_id,), self.storage_options)

    def read(
        self, columns: Iterable[str], *, handle: LanceDataset | None = None, with_row_id: bool = False
    ) -> pa.Table:
        """The rows of the share, in no order that means anything."""
        from reference.storage.tables import translated

        handle = handle or self.open()
        with translated(f"the rows of {self.table.table_key}"):
            return self.scanner(handle, columns, with_row_id=with_row_id).to_table()

    def batches(self, columns: Iterable[str], rows: int) -> Iterator[pa.RecordBatch]:
        """The same, at most so many rows at a time."""
        from reference.storage.tables import translated

        with translated(f"the rows of {self.table.table_key}"):
            yield from self.scanner(self.open(), columns, batch_size=rows).to_batches()

    def scanner(self, handle: LanceDataset, columns: Iterable[str], **options: Any) -> Any:
        fragments = chosen_fragments(handle, self.fragment_ids)
        if self.places is not None:
            start, stop = self.places
            options |= {"offset": start, "limit": stop - start}
        return handle.scanner(columns=list(columns), fragments=fragments, **options)


def chosen_fragments(handle: LanceDataset, numbers: Sequence[int]) -> list[LanceFragment]:
    """Fragments of a version, by number, in that order."""
    by_number = {int(fragment.fragment_id): fragment for fragment in handle.get_fragments()}
    return [by_number[number] for number in numbers]


def shares(graph: PinnedGraph, table_key: str, *, rows: int = TASK_ROWS) -> list[Share]:
    """A table cut into shares of about so many rows. A fragment is never cut; small ones are taken together."""
    table = graph.tables[table_key]
    numbers = table.fragment_ids
    if not numbers:
        return []
    at_once = max(1, rows * len(numbers) // max(1, table.row_count))
    starts = range(0, len(numbers), at_once)
    return [Share(table, numbers[start : start + at_once], graph.storage_options) for start in starts]


def blob_contents(handle: LanceDataset, rows: pa.Table, name: str, foreign_versions: frozenset[int]) -> list[BlobValue]:
    """The blobs of some rows, which were read with their row ids and the versions that wrote them.

    OmniGraph 0.8 writes a null blob as what Lance now writes for an empty one. The driver knows which versions are not
    of this engine.
    """
    row_ids = rows.column(ROW_ID).to_pylist()

    def read(indices: list[int]) -> list[bytes]:
        wanted = [row_ids[index] for index in indices]
        return [content or b"" for _, content in handle.read_blobs(name, ids=wanted, preserve_order=True)]

    values = blob_values(rows.column(name), read)
    if not foreign_versions:
        return values
    written_at = rows.column(ROW_UPDATED_AT).to_pylist()
    pairs = zip(values, written_at, strict=True)
    return [None if value == b"" and version in foreign_versions else value for value, version in pairs]


def blob_names(handle: LanceDataset) -> list[str]:
    """The columns of a dataset that hold blobs."""
    return [
        column.name
        for column in handle.schema
        if isinstance(column.type, pa.BaseExtensionType) and "blob" in column.type.extension_name
    ]
