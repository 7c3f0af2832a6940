"""Which requests a rule is for: by owner, verb, role, table, whether it writes, and by count."""

from __future__ import annotations

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from failpoints.gate import Armed, Gate, Port, Rule
from failpoints.gate.roles import page_of
from fixtures.stores.moto import MotoStore

pytestmark = pytest.mark.s3

SIDECAR = "__recovery/one.json"
PERSON = "nodes/40d76f1f51639ec0"
KNOWS = "edges/602a25a3bd0b455b"


@pytest.fixture
def client(port: Port, moto_store: MotoStore) -> S3Store:
    return moto_store.objects(endpoint=port.endpoint, retries=0)


def put(client: S3Store, key: str) -> bool:
    """Whether the client was told that it worked."""
    try:
        obstore.put(client, key, b"x", use_multipart=False)
    except BaseError:
        return False
    return True


def test_a_rule_for_one_owner_leaves_the_other_alone(gate: Gate, client: S3Store, moto_store: MotoStore) -> None:
    other = moto_store.objects(endpoint=gate.port("other").endpoint, retries=0)
    gate.arm(Rule("refuse", owner="other", times=None))
    assert [put(client, "g/a"), put(other, "g/b")] == [True, False]
    assert [each.key for each in gate.exchanges("other")] == ["g/b"]
    assert [each.owner for each in gate.exchanges()] == ["engine", "other"]


def test_a_rule_for_verbs(gate: Gate, client: S3Store) -> None:
    gate.arm(Rule("refuse", verbs=("GET", "DELETE"), times=None))
    assert put(client, "g/a")
    for action in (lambda: obstore.get(client, "g/a"), lambda: obstore.delete(client, "g/a")):
        with pytest.raises(BaseError):
            action()
    assert obstore.head(client, "g/a")["size"] == 1


def test_a_rule_for_roles(gate: Gate, client: S3Store) -> None:
    gate.arm(Rule("refuse", roles=("sidecar", "table data"), times=None))
    keys = (f"g/{SIDECAR}", f"g/{PERSON}/data/x.lance", f"g/{PERSON}/_versions/1.manifest")
    assert [put(client, key) for key in keys] == [False, False, True]


def test_a_rule_for_tables(gate: Gate, client: S3Store) -> None:
    gate.arm(Rule("refuse", tables=(KNOWS,), times=None))
    assert [put(client, f"g/{table}/data/x.lance") for table in (PERSON, KNOWS)] == [True, False]


def test_a_rule_for_requests_that_write(gate: Gate, client: S3Store) -> None:
    gate.arm(Rule("refuse", durable=True, times=None))
    assert not put(client, "g/a")
    assert list(obstore.list(client, "nothing-here")) == []


def test_a_rule_for_requests_that_only_read(gate: Gate, client: S3Store) -> None:
    gate.arm(Rule("refuse", durable=False, times=None))
    assert put(client, "g/a")
    with pytest.raises(BaseError):
        obstore.head(client, "g/a")


def test_a_rule_acts_from_the_nth_match_on_so_many_times(gate: Gate, client: S3Store) -> None:
    put(client, f"g/{SIDECAR}")
    armed = gate.arm(Rule("refuse", roles=("sidecar",), nth=2, times=2))
    results = []
    for _ in range(5):
        put(client, "g/something-else")
        results.append(put(client, f"g/{SIDECAR}"))
    assert results == [True, False, False, True, True]
    assert armed.hits == 2


def test_the_rule_that_was_armed_first_acts_and_all_count(gate: Gate, client: S3Store) -> None:
    first = gate.arm(Rule("answer", status=403, verbs=("PUT",)))
    second = gate.arm(Rule("refuse", times=2))
    assert [put(client, "g/a") for _ in range(3)] == [False, False, True]
    assert (first.hits, second.hits) == (1, 1)
    assert [each.outcome for each in gate.exchanges()] == ["injected", "refused", "answered"]


def test_a_rule_that_is_disarmed_is_gone(gate: Gate, client: S3Store) -> None:
    armed: Armed = gate.arm(Rule("refuse", times=None))
    assert not put(client, "g/a")
    armed.disarm()
    assert put(client, "g/a") and armed.hits == 1


def test_a_bulk_delete_is_met_by_the_role_of_its_keys(gate: Gate, client: S3Store) -> None:
    keys = [f"g/{PERSON}/_versions/{number}.manifest" for number in (1, 2)] + [f"g/{SIDECAR}"]
    gate.arm(Rule("refuse", verbs=("DELETE",), roles=("table version",), tables=(PERSON,), times=None))
    obstore.delete(client, keys[2:])
    with pytest.raises(BaseError):
        obstore.delete(client, keys[:2])
    sidecar, versions = gate.exchanges()
    assert (sidecar.keys, sidecar.role, sidecar.outcome) == ((f"g/{SIDECAR}",), "sidecar", "answered")
    assert (versions.method, versions.verb, versions.keys, versions.table) == (
        "POST",
        "DELETE",
        tuple(keys[:2]),
        PERSON,
    )


def test_keys_of_a_bulk_delete_are_read_as_they_are(gate: Gate, client: S3Store) -> None:
    keys = ["g/a&b <c> \"d\" 'e'.json", "g/ä€.json"]
    for key in keys:
        put(client, key)
    obstore.delete(client, keys)
    assert gate.exchanges()[-1].keys == tuple(keys)
    assert [each.key for each in gate.exchanges()[:2]] == keys


def test_a_listing_counts_its_keys(gate: Gate, client: S3Store, moto_store: MotoStore) -> None:
    prefix = moto_store.fresh_prefix()
    for number in range(5):
        put(client, f"{prefix}/{PERSON}/_versions/{number}.manifest")
    obstore.list(client, f"{prefix}/{PERSON}/_versions").collect()
    listing = gate.exchanges()[-1]
    assert (listing.verb, listing.key, listing.role, listing.table, listing.listed) == (
        "LIST",
        "",
        "listing",
        PERSON,
        5,
    )
    assert listing.prefix == f"{prefix}/{PERSON}/_versions/"


def test_which_bytes_and_which_page_were_asked_for_is_kept(gate: Gate, client: S3Store) -> None:
    put(client, "g/a")
    obstore.get_range(client, "g/a", start=0, end=1)
    obstore.get(client, "g/a")
    obstore.list(client, "g").collect()
    obstore.list(client, "g", offset="g/9").collect()
    assert [each.portion for each in gate.exchanges()] == ["", "bytes=0-0", "", "", "g/9"]


@pytest.mark.parametrize("name", ["continuation-token", "marker", "key-marker", "start-after"])
def test_a_page_is_known_by_where_the_listing_goes_on(name: str) -> None:
    assert page_of({"prefix": "g/", name: "x"}) == "x"
    assert page_of({"prefix": "g/", name: ""}) == page_of({"prefix": "g/"}) == ""
