"""Typed rows out again: the lines of an export, byte for byte [EXP-01], and rows as JSON for reads.

A line is `{"type":T,"data":{"id":…,…}}` or `{"edge":E,"from":…,"to":…,"data":{"id":…,…}}`, compact, with every declared
property in table order. A Date is its days since 1970, a DateTime its ISO text in UTC without a zone, an F32 widened to
64 bits, a blob `base64:…` or its URI. Digits and escapes are those of orjson, which is what the format asks for; a test
pins them.

Lance hands out blobs as descriptors. `blob_values` turns a column of them into values, given a function that reads
contents; the rows' blob values are then an argument of the renderers. Nothing here touches storage.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import Internal
from reference.format.values import BLOB_PREFIX, texts
from reference.schema.types import EdgeType, NodeType

BlobValue = bytes | str | None
BlobColumns = Mapping[str, Sequence[BlobValue]]

_NO_BLOBS: Final[BlobColumns] = {}
_EXTERNAL_KIND: Final = 3
_BATCH_ROWS: Final = 16_384


def export_lines(
    rows: pa.Table | pa.RecordBatch, owner: NodeType | EdgeType, blobs: BlobColumns = _NO_BLOBS
) -> Iterator[bytes]:
    """Each row as its line, newline included. `blobs` holds, per blob property, one value for each row."""
    names = ["id", *(prop.name for prop in owner.properties)]
    is_edge = isinstance(owner, EdgeType)
    for columns in _batches(rows, ["src", "dst", *names] if is_edge else names, blobs):
        if is_edge:
            sources, targets, *columns = columns
            ends = zip(sources, targets, zip(*columns, strict=True), strict=True)
            for source, target, row in ends:
                record = {"edge": owner.name, "from": source, "to": target, "data": dict(zip(names, row, strict=True))}
                yield orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        else:
            for row in zip(*columns, strict=True):
                record = {"type": owner.name, "data": dict(zip(names, row, strict=True))}
                yield orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def row_json(rows: pa.Table | pa.RecordBatch, blobs: BlobColumns = _NO_BLOBS) -> list[dict[str, Any]]:
    """Each row as a JSON object of its columns, with the values that an export would show."""
    names = rows.schema.names
    batches = _batches(rows, names, blobs)
    return [dict(zip(names, row, strict=True)) for columns in batches for row in zip(*columns, strict=True)]


def blob_values(
    descriptors: pa.Array | pa.ChunkedArray, read: Callable[[list[int]], Sequence[bytes]]
) -> list[BlobValue]:
    """What a column of Lance's blob descriptors holds: contents, URI references and nulls.

    `read` gets the indices of the rows whose contents are needed, ascending, and returns those. A reference to a whole
    object stays a reference; one to a part of an object has no URI of its own, so its content is taken.
    """
    found: list[BlobValue] = []
    wanted: list[int] = []
    for index, descriptor in enumerate(descriptors.to_pylist()):
        if descriptor is None:
            found.append(None)
        elif descriptor["kind"] == _EXTERNAL_KIND and not descriptor["size"] and not descriptor["blob_id"]:
            found.append(descriptor["blob_uri"])
        elif not descriptor["size"] and descriptor["kind"] != _EXTERNAL_KIND:
            found.append(b"")
        else:
            found.append(None)
            wanted.append(index)
    if wanted:
        for index, content in zip(wanted, read(wanted), strict=True):
            found[index] = content
    return found


def _batches(rows: pa.Table | pa.RecordBatch, names: Sequence[str], blobs: BlobColumns) -> Iterator[list[list[Any]]]:
    """The named columns as lists of JSON values, a bounded number of rows at a time."""
    done = 0
    batches = rows.to_batches(max_chunksize=_BATCH_ROWS) if isinstance(rows, pa.Table) else [rows]
    for batch in batches:
        yield [
            [blob_json(value) for value in blobs[name][done : done + batch.num_rows]]
            if name in blobs
            else json_values(batch.column(name), name)
            for name in names
        ]
        done += batch.num_rows


def blob_json(value: BlobValue) -> str | None:
    """A blob as load reads it back."""
    return BLOB_PREFIX + base64.b64encode(value).decode() if isinstance(value, bytes) else value


def json_values(array: pa.Array, name: str) -> list[Any]:
    """A column's values as JSON has them."""
    kind = array.type
    if pa.types.is_floating(kind):
        if pc.all(pc.is_finite(array)).as_py() is False:
            raise Internal(f"'{name}' holds a number that is not finite, which JSON cannot write", code="not_finite")
        return list(array.cast(pa.float64()).to_pylist())
    if pa.types.is_date32(kind):
        return list(array.view(pa.int32()).to_pylist())
    if pa.types.is_date64(kind):
        return list(texts(array).to_pylist())
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        items = iter(json_values(array.flatten(), name))
        lengths = pc.list_value_length(array).to_pylist()
        return [None if length is None else list(itertools.islice(items, length)) for length in lengths]
    if isinstance(kind, pa.BaseExtensionType):
        stored = zip(*(array.storage.field(part).to_pylist() for part in ("data", "uri")), strict=True)
        valid = array.is_valid().to_pylist()
        both = zip(valid, stored, strict=True)
        return [blob_json(data if uri is None else uri) if present else None for present, (data, uri) in both]
    if pa.types.is_struct(kind):
        raise Internal(f"the contents of the blobs of '{name}' were not read", code="blobs_not_read")
    return list(array.to_pylist())
