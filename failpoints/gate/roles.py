"""What a request is about: its verb, and which part of a graph its key names. Pure: text in, values out.

A graph can be below any prefix, so a key is read from the first part of it that only a graph has: `__manifest`,
`nodes/<hash>`, `edges/<hash>`, `__recovery`, the recoveries dataset or a schema file. A Lance dataset that is no part
of a graph counts as a table, by the name of its directory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

VERBS: Final = (
    "GET",
    "HEAD",
    "LIST",
    "PUT",
    "COPY",
    "DELETE",
    "INITIATE_UPLOAD",
    "PUT_PART",
    "COMPLETE_UPLOAD",
    "ABORT_UPLOAD",
    "LIST_UPLOADS",
    "OTHER",
)
DURABLE_VERBS: Final = frozenset(
    {"PUT", "COPY", "DELETE", "PUT_PART", "INITIATE_UPLOAD", "COMPLETE_UPLOAD", "ABORT_UPLOAD"}
)

MANIFEST: Final = "__manifest"
AUDIT: Final = "_graph_commit_recoveries.lance"
_PARTS: Final = {
    "_versions": "version",
    "data": "data",
    "_transactions": "transaction",
    "_deletions": "deletion",
    "_indices": "index",
    "_refs": "ref",
}
_KINDS: Final = ("manifest", "table", "audit")

ROLES: Final = (
    *(f"{kind} {part}" for kind in _KINDS for part in (*_PARTS.values(), "root")),
    "sidecar",
    "schema file",
    "graph root",
    "listing",
    "bulk delete",
    "upload",
    "bucket",
    "other",
)

_U64_MAX: Final = 2**64 - 1
_HASH: Final = re.compile(r"[0-9a-f]{16}")
_SCHEMA_FILE: Final = re.compile(r"(_schema\.pg|_schema\.ir\.json|__schema_state\.json)(\.staging)?")
# No version has more digits; a name that has is a name like any other.
_VERSION_FILE: Final = re.compile(r"([0-9]{1,20})\.manifest(-.*)?")
# Parts of a bucket's own settings: a GET with one of these is no listing.
_LISTING_PARAMETERS: Final = frozenset(
    {"list-type", "prefix", "delimiter", "marker", "max-keys", "start-after", "continuation-token", "encoding-type"}
    | {"fetch-owner", "versions", "key-marker", "version-id-marker", "allow-unordered", "optional-object-attributes"}
)
# Where a page of a listing goes on, in the ways that S3 has for it.
_GOES_ON: Final = ("continuation-token", "marker", "key-marker", "start-after")
# How a URL says who signed it, and the name that some clients give to what they ask: no part of the question.
_SIGNED_BY: Final = re.compile(r"x-amz-.*|awsaccesskeyid|signature|expires|x-id", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """What a key names."""

    role: str = "other"
    table: str = ""
    branch: str = ""
    version: int | None = None


@lru_cache(maxsize=4096)
def place_of(key: str) -> Place:
    """The part of a graph that a key, or the prefix of a listing, is in."""
    parts = [part for part in key.split("/") if part]
    for number, part in enumerate(parts):
        rest = parts[number + 1 :]
        if part == MANIFEST:
            return _in_dataset("manifest", MANIFEST, rest)
        if part == AUDIT:
            return _in_dataset("audit", AUDIT, rest)
        if part in ("nodes", "edges") and rest and _HASH.fullmatch(rest[0]):
            return _in_dataset("table", f"{part}/{rest[0]}", rest[1:])
        if part == "__recovery":
            return Place("sidecar")
    if parts and _SCHEMA_FILE.fullmatch(parts[-1]):
        return Place("schema file")
    if parts and parts[-1] in ("nodes", "edges"):
        return Place("graph root")
    return _in_a_dataset_of_its_own(parts)


def _in_a_dataset_of_its_own(parts: Sequence[str]) -> Place:
    """A dataset outside of any graph is known by its inner directories."""
    for number, part in enumerate(parts):
        if number and (part in _PARTS or part == "tree"):
            found = _in_dataset("table", parts[number - 1], parts[number:])
            return Place() if found.role == "table root" else found
    if parts and parts[-1].endswith(".lance"):
        return Place("table root", parts[-1])
    return Place()


def _in_dataset(kind: str, table: str, parts: Sequence[str]) -> Place:
    """The last inner directory decides: a branch may be named like one, and its files are below it."""
    places = [number for number, part in enumerate(parts) if part in _PARTS]
    end = places[-1] if places else len(parts)
    if places and parts[places[0]] == "_refs":
        end = places[0]
    branch = "/".join(parts[1:end]) if parts and parts[0] == "tree" else ""
    if end == len(parts):
        return Place(f"{kind} root", table, branch)
    what = _PARTS[parts[end]]
    return Place(f"{kind} {what}", table, branch, _version(parts[-1]) if what == "version" else None)


def _version(name: str) -> int | None:
    """Lance counts down in names of 20 digits, so that the newest sorts first; shorter ones are the number itself."""
    found = _VERSION_FILE.fullmatch(name)
    if found is None:
        return None
    digits = found[1]
    return _U64_MAX - int(digits) if len(digits) == 20 else int(digits)


def verb_of(method: str, key: str, query: Mapping[str, str], *, copies: bool = False) -> str:
    """What a request means, from what is in it."""
    if key:
        return _verb_of_object(method, query, copies)
    if method == "GET":
        if "uploads" in query:
            return "LIST_UPLOADS"
        return "LIST" if query.keys() <= _LISTING_PARAMETERS else "OTHER"
    if method == "POST" and "delete" in query:
        return "DELETE"
    return "HEAD" if method == "HEAD" else "OTHER"


def _verb_of_object(method: str, query: Mapping[str, str], copies: bool) -> str:
    in_upload = "uploadId" in query
    match method:
        case "GET":
            return "LIST_UPLOADS" if in_upload else "GET"
        case "PUT":
            return "PUT_PART" if in_upload else "COPY" if copies else "PUT"
        case "DELETE":
            return "ABORT_UPLOAD" if in_upload else "DELETE"
        case "POST":
            return "INITIATE_UPLOAD" if "uploads" in query else "COMPLETE_UPLOAD" if in_upload else "OTHER"
        case _:
            return "HEAD" if method == "HEAD" else "OTHER"


def page_of(query: Mapping[str, str]) -> str:
    """Which page of a listing is asked for; empty for the first one."""
    return next((query[name] for name in _GOES_ON if query.get(name)), "")


def role_of(verb: str, key: str, keys: Sequence[str] = ()) -> str:
    """The role of a request: of its key, or of the keys of a bulk delete where all have the same."""
    if verb == "LIST":
        return "listing"
    if key:
        role = place_of(key).role
        return "upload" if role == "other" and verb.endswith(("UPLOAD", "UPLOADS", "PART")) else role
    if verb == "DELETE":
        roles = {place_of(each).role for each in keys}
        return roles.pop() if len(roles) == 1 and "other" not in roles else "bulk delete"
    return "upload" if verb == "LIST_UPLOADS" else "bucket"


def common_place(keys: Sequence[str]) -> Place:
    """What all keys of a bulk delete have in common."""
    if len(keys) == 1:
        return place_of(keys[0])
    places = [place_of(each) for each in keys]
    tables = {place.table for place in places}
    branches = {(place.table, place.branch) for place in places}
    table = tables.pop() if len(tables) == 1 else ""
    return Place("bulk delete", table, branches.pop()[1] if len(branches) == 1 else "")


def split_target(target: str) -> tuple[str, str, dict[str, str]]:
    """Bucket, key and query parameters of a request target, without those by which it is signed."""
    if target.startswith(("http://", "https://")):
        target = "/" + target.split("/", 3)[3] if target.count("/") >= 3 else "/"
    path, _, query = target.partition("?")
    bucket, _, key = path.removeprefix("/").partition("/")
    parameters = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        if not _SIGNED_BY.fullmatch(unquote(name)):
            parameters[unquote(name)] = unquote(value.replace("+", " "))
    return unquote(bucket), unquote(key), parameters
