"""The order of ids, many at a time: which range of ids each of them belongs to.

Ids are ordered by their UTF-8 bytes, as an export orders them. They are compared by their first bytes only, which never
puts two ids into the wrong order of ranges: at worst ids that begin alike end up in one range together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PREFIX_BYTES: Final = 32


def prefixes(ids: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
    """The first bytes of each id."""
    cut = pc.binary_slice(ids.cast(pa.binary()), 0, PREFIX_BYTES)
    chunks = cut.chunks if isinstance(cut, pa.ChunkedArray) else [cut]
    found = [_padded(chunk) for chunk in chunks if len(chunk)]
    return np.concatenate(found) if found else np.empty(0, dtype=f"S{PREFIX_BYTES}")


def ranges_of(ids: pa.Array | pa.ChunkedArray, points: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """The number of the range of each id; a point is the first id of the range after it."""
    return np.searchsorted(np.array(points, dtype=f"S{PREFIX_BYTES}"), prefixes(ids), side="right")


def _padded(array: pa.Array) -> npt.NDArray[Any]:
    """Texts of few bytes as numpy has them: all of one size, zeros at the end."""
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    lengths = np.diff(offsets)
    padded = np.zeros((len(array), PREFIX_BYTES), dtype=np.uint8)
    if data_buffer is not None and offsets[-1] > offsets[0]:
        data = np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
        rows = np.repeat(np.arange(len(array)), lengths)
        places = np.arange(len(data)) - np.repeat(offsets[:-1] - offsets[0], lengths)
        padded[rows, places] = data
    return padded.view(f"S{PREFIX_BYTES}").ravel()
