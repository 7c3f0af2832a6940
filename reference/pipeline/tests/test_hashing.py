"""Hashes depend on values alone: not on how Arrow happens to hold them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reference.pipeline.hashing import Checksum, checksum, column_hashes, row_hashes

TEXTS = st.lists(st.none() | st.text(max_size=40) | st.text("ab\0", min_size=250, max_size=270), max_size=30)


@given(TEXTS)
def test_equal_texts_hash_alike_and_different_ones_do_not(texts: list[str | None]) -> None:
    hashes = column_hashes(pa.array(texts, pa.string()))
    assert len(set(hashes.tolist())) == len(set(texts))
    assert dict(zip(texts, hashes.tolist(), strict=True)) == {
        text: column_hashes(pa.array([text], pa.large_string()))[0] for text in texts
    }


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4), max_size=12), st.data())
def test_hashes_do_not_depend_on_chunks_and_slices(lists: list[list[int | None] | None], data: st.DataObject) -> None:
    whole = pa.array(lists, pa.list_(pa.int32()))
    cut = data.draw(st.integers(0, len(lists)))
    parts = pa.chunked_array([whole.slice(0, cut), whole.slice(cut)], whole.type)
    assert column_hashes(whole).tolist() == column_hashes(parts).tolist()
    distinct = {repr(each) for each in lists}
    assert len(set(column_hashes(whole).tolist())) == len(distinct)


def test_times_and_vectors_hash_alike_in_every_form() -> None:
    millis = pa.array([1_000, None, -5], pa.int64())
    forms = [millis, millis.view(pa.timestamp("ms")), millis.view(pa.date64())]
    assert len({tuple(column_hashes(form).tolist()) for form in forms}) == 1
    floats = [[1.0, 2.0], None]
    fixed = pa.array(floats, pa.list_(pa.float32(), 2))
    assert column_hashes(fixed).tolist() == column_hashes(pa.array(floats, pa.list_(pa.float32()))).tolist()


def test_what_an_export_tells_apart_hashes_apart() -> None:
    pairs = [
        pa.array([0.0, -0.0]),
        pa.array(["", None]),
        pa.array([[], None], pa.list_(pa.string())),
        pa.array([["a", "b"], ["b", "a"]]),
        pa.array([["ab"], ["a", "b"]]),
        pa.array(["a" * 8, "a" * 9]),
        pa.array([b"\0", b"\0\0"]),
    ]
    for pair in pairs:
        assert len(set(column_hashes(pair).tolist())) == 2, pair
    swapped = row_hashes([pa.array(["a", None]), pa.array([None, "a"])])
    assert swapped[0] != swapped[1], "a value in one column is not that value in another"


def test_a_checksum_forgets_the_order_of_rows_and_nothing_else() -> None:
    rows = pa.table({"id": ["a", "b", "c"], "n": [1, 2, None]})
    shuffled = rows.take([2, 0, 1])
    whole = checksum(rows, ["id", "n"])
    assert checksum(shuffled, ["id", "n"]) == whole
    assert checksum(rows.slice(0, 1), ["id", "n"]) + checksum(rows.slice(1), ["id", "n"]) == whole
    assert whole != checksum(rows.set_column(1, "n", [[2, 1, None]]), ["id", "n"])
    assert checksum(rows.slice(0, 0), ["id"]) == Checksum()
