"""What a key and a request mean."""

from __future__ import annotations

import pytest

from failpoints.gate.roles import ROLES, VERBS, common_place, place_of, role_of, split_target, verb_of

PERSON = "nodes/40d76f1f51639ec0"
KNOWS = "edges/602a25a3bd0b455b"
MANIFEST = "__manifest"
AUDIT = "_graph_commit_recoveries.lance"


@pytest.mark.parametrize(
    ("key", "role", "table", "branch", "version"),
    [
        ("g/__manifest/_versions/18446744073709551610.manifest", "manifest version", MANIFEST, "", 5),
        ("g/__manifest/tree/f/g/_versions/18446744073709551606.manifest", "manifest version", MANIFEST, "f/g", 9),
        ("g/__manifest/data/01.lance", "manifest data", MANIFEST, "", None),
        ("g/__manifest/_transactions/4-uuid.txn", "manifest transaction", MANIFEST, "", None),
        ("g/__manifest/_deletions/0-3-7.arrow", "manifest deletion", MANIFEST, "", None),
        ("g/__manifest/_refs/branches/feat%2Fone.json", "manifest ref", MANIFEST, "", None),
        ("g/__manifest", "manifest root", MANIFEST, "", None),
        (f"{PERSON}/_versions/18446744073709551615.manifest", "table version", PERSON, "", 0),
        (f"a/b/{PERSON}/_versions/12.manifest", "table version", PERSON, "", 12),
        (f"a/b/{PERSON}/_versions/d12.manifest", "table version", PERSON, "", None),
        (f"g/{KNOWS}/data/01.lance", "table data", KNOWS, "", None),
        (f"g/{KNOWS}/data/01/blob.bin", "table data", KNOWS, "", None),
        (f"g/{KNOWS}/_indices/uuid/page_data.lance", "table index", KNOWS, "", None),
        (f"g/{KNOWS}/_deletions/0-1-2.bin", "table deletion", KNOWS, "", None),
        (f"g/{KNOWS}/_transactions/1-uuid.txn", "table transaction", KNOWS, "", None),
        (f"g/{KNOWS}/_refs/branches/b.json", "table ref", KNOWS, "", None),
        (f"g/{KNOWS}/tree/b/data/01.lance", "table data", KNOWS, "b", None),
        # A branch that is called like an inner directory.
        (f"g/{KNOWS}/tree/b/data/_versions/18446744073709551614.manifest", "table version", KNOWS, "b/data", 1),
        (f"g/{AUDIT}/data/1.lance", "audit data", AUDIT, "", None),
        (f"g/{AUDIT}/_versions/18446744073709551614.manifest", "audit version", AUDIT, "", 1),
        ("g/__recovery/01M7JF8J9W39TMHCMJWRPJX5X7.json", "sidecar", "", "", None),
        ("g/_schema.pg", "schema file", "", "", None),
        ("g/_schema.ir.json.staging", "schema file", "", "", None),
        ("g/__schema_state.json", "schema file", "", "", None),
        ("g/nodes", "graph root", "", "", None),
        ("t.lance/_versions/18446744073709551613.manifest", "table version", "t.lance", "", 2),
        ("x/t.lance/tree/b/_transactions/1-u.txn", "table transaction", "t.lance", "b", None),
        ("x/t.lance", "table root", "t.lance", "", None),
        (f"g/{KNOWS}/_versions/{'9' * 5000}.manifest", "table version", KNOWS, "", None),
        ("photos/cat.jpg", "other", "", "", None),
        ("nodes/not-a-hash/data", "table data", "not-a-hash", "", None),
        ("", "other", "", "", None),
    ],
)
def test_a_key_says_what_it_is(key: str, role: str, table: str, branch: str, version: int | None) -> None:
    place = place_of(key)
    assert (place.role, place.table, place.branch, place.version) == (role, table, branch, version)
    assert place.role in ROLES


@pytest.mark.parametrize(
    ("method", "target", "copies", "verb"),
    [
        ("GET", "/b/k", False, "GET"),
        ("GET", "/b/k?versionId=1", False, "GET"),
        ("HEAD", "/b/k", False, "HEAD"),
        ("HEAD", "/b", False, "HEAD"),
        ("GET", "/b?list-type=2&prefix=x%2Fy", False, "LIST"),
        ("GET", "/b/?prefix=x&delimiter=%2F", False, "LIST"),
        ("GET", "/b", False, "LIST"),
        ("GET", "/b?prefix=x&X-Amz-Security-Token=hush&x-amz-signature=hush", False, "LIST"),
        ("GET", "/b?prefix=x&AWSAccessKeyId=hush&Signature=hush&Expires=1", False, "LIST"),
        ("GET", "/b?list-type=2&x-id=ListObjectsV2&X%2DAmz%2DDate=1", False, "LIST"),
        ("GET", "/b?location&X-Amz-Signature=hush", False, "OTHER"),
        ("GET", "/b?location", False, "OTHER"),
        ("GET", "/b?uploads", False, "LIST_UPLOADS"),
        ("GET", "/b/k?uploadId=1", False, "LIST_UPLOADS"),
        ("PUT", "/b/k", False, "PUT"),
        ("PUT", "/b/k?x-id=PutObject", False, "PUT"),
        ("PUT", "/b/k", True, "COPY"),
        ("PUT", "/b/k?partNumber=1&uploadId=1", False, "PUT_PART"),
        ("PUT", "/b", False, "OTHER"),
        ("DELETE", "/b/k", False, "DELETE"),
        ("DELETE", "/b/k?uploadId=1", False, "ABORT_UPLOAD"),
        ("DELETE", "/b", False, "OTHER"),
        ("POST", "/b?delete", False, "DELETE"),
        ("POST", "/b/?delete=", False, "DELETE"),
        ("POST", "/b/k?uploads", False, "INITIATE_UPLOAD"),
        ("POST", "/b/k?uploadId=1", False, "COMPLETE_UPLOAD"),
        ("POST", "/b/k?select", False, "OTHER"),
        ("OPTIONS", "/b/k", False, "OTHER"),
    ],
)
def test_a_request_says_what_it_means(method: str, target: str, copies: bool, verb: str) -> None:
    _, key, query = split_target(target)
    assert verb_of(method, key, query, copies=copies) == verb
    assert verb in VERBS


def test_a_target_is_taken_apart_and_decoded() -> None:
    assert split_target("/b/a%20b/%E2%82%AC%252F?prefix=x+y%2Bz&flag") == (
        "b",
        "a b/€%2F",
        {"prefix": "x y+z", "flag": ""},
    )
    assert split_target("http://host:1/b/k?x=1") == ("b", "k", {"x": "1"})
    assert split_target("/") == ("", "", {})


def test_what_a_target_is_signed_with_is_left_out() -> None:
    assert split_target("/b?X-Amz-Signature=hush&SIGNATURE=hush&Expires=1&awsAccessKeyId=hush&x-AMZ-Date=1&a=1") == (
        "b",
        "",
        {"a": "1"},
    )


def test_a_bulk_delete_has_the_role_of_its_keys_where_they_agree() -> None:
    first, second = (f"g/{PERSON}/tree/b/_versions/{number:020d}.manifest" for number in (7, 8))
    assert role_of("DELETE", "", (first, second)) == "table version"
    assert role_of("DELETE", "", (first, "g/__recovery/x.json")) == "bulk delete"
    assert role_of("DELETE", "", ("photo.jpg",)) == "bulk delete"
    assert role_of("DELETE", "", ()) == "bulk delete"
    assert (common_place((first, second)).table, common_place((first, second)).branch) == (PERSON, "b")
    assert common_place((first, f"g/{PERSON}/data/x.lance")).branch == ""
    assert common_place((first, "g/__recovery/x.json")).table == ""
    assert common_place((first,)).version == 2**64 - 1 - 7


def test_listings_uploads_and_buckets_have_roles_of_their_own() -> None:
    assert role_of("LIST", "") == "listing"
    assert role_of("PUT_PART", "photo.jpg") == "upload"
    assert role_of("PUT_PART", f"g/{PERSON}/data/x.lance") == "table data"
    assert role_of("LIST_UPLOADS", "") == "upload"
    assert role_of("HEAD", "") == "bucket"
    assert role_of("PUT", "photo.jpg") == "other"
