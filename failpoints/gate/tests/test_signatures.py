"""A store that checks signatures accepts through the gate what it accepts directly, and refuses what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError

from failpoints.gate import Gate, Rule
from fixtures.stores import seaweedfs
from fixtures.stores.s3_server import StoreUnavailable
from fixtures.stores.seaweedfs import SeaweedStore

pytestmark = pytest.mark.s3

ROWS = pa.table({"id": ["a", "b"], "value": [1, 2]})


@pytest.fixture(scope="module")
def seaweed_store() -> Iterator[SeaweedStore]:
    try:
        with seaweedfs.running() as store:
            yield store
    except StoreUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def gate(seaweed_store: SeaweedStore) -> Iterator[Gate]:
    with Gate(seaweed_store.endpoint) as opened:
        yield opened


def test_a_right_signature_is_right_through_the_gate(gate: Gate, seaweed_store: SeaweedStore) -> None:
    client = seaweed_store.objects(endpoint=gate.port("a").endpoint, retries=0)
    key = f"{seaweed_store.fresh_prefix()}/a b+c%2F€.txt"
    obstore.put(client, key, b"content", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(client, key, b"second", mode="create")
    assert bytes(obstore.get(client, key).bytes()) == b"content"
    obstore.put(client, f"{key}-large", b"x" * (6 * 2**20), use_multipart=False)
    obstore.put(client, f"{key}-parts", b"x" * (11 * 2**20), use_multipart=True, chunk_size=5 * 2**20)
    assert sorted(meta["size"] for meta in obstore.list(client, key.split("/")[0]).collect()) == [7, 6 << 20, 11 << 20]
    obstore.delete(client, [key, f"{key}-large"])
    assert gate.exchanges()[0].key == key
    assert {each.status for each in gate.exchanges()} <= {200, 204, 206, 412}


@pytest.mark.parametrize("through", ["the gate", "nothing"])
def test_a_wrong_secret_is_refused(gate: Gate, seaweed_store: SeaweedStore, through: str) -> None:
    endpoint = gate.port("a").endpoint if through == "the gate" else seaweed_store.endpoint
    client = seaweed_store.objects(endpoint=endpoint, secret="wrong", retries=0)
    with pytest.raises(PermissionDeniedError):
        obstore.put(client, seaweed_store.fresh_prefix(), b"x", use_multipart=False)
    assert [each.status for each in gate.exchanges()] == ([403] if through == "the gate" else [])


def test_a_table_is_written_and_read_through_the_gate(gate: Gate, seaweed_store: SeaweedStore) -> None:
    options = seaweed_store.storage_options_at(gate.port("a").endpoint)
    uri = f"{seaweed_store.fresh_root()}/table.lance"
    lance.write_dataset(ROWS, uri, storage_options=options)
    cut = gate.arm(Rule("cut", verbs=("PUT",), roles=("table version",)))
    table = lance.write_dataset(ROWS, uri, mode="append", storage_options=options)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(ROWS.slice(0, 0))
    assert (cut.hits, table.version) == (1, 3)
    assert lance.dataset(uri, storage_options=seaweed_store.storage_options).count_rows() == 4
    assert not [each.key for each in gate.exchanges() if each.role == "other"]
    listings = [each for each in gate.exchanges() if each.verb == "LIST"]
    assert max(each.listed for each in listings) >= 2


def test_ignored_conditions_do_not_pass_a_store_that_checks_signatures(gate: Gate, seaweed_store: SeaweedStore) -> None:
    """Clients sign these headers, so a request without them is not what was signed."""
    client = seaweed_store.objects(endpoint=gate.port("a").endpoint, retries=0)
    gate.arm(Rule("ignore_conditions"))
    with pytest.raises(BaseError):
        obstore.put(client, seaweed_store.fresh_prefix(), b"x", mode="create")
    assert [each.status for each in gate.exchanges()] == [403]
