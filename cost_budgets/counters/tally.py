"""What a few requests add up to: by verb, by role, by table and by outcome, with pages, keys, bytes, parts and hops.

Pure: exchanges of the gate in, numbers out. Every request is counted once under each heading, whatever became of it: a
request that finds nothing costs as much as one that does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.audit.names import RECOVERY_DIR
from failpoints.gate import VERBS, Exchange
from failpoints.gate.roles import place_of

READS: Final = frozenset({"GET", "HEAD", "LIST", "LIST_UPLOADS"})
# What a budget can be about, besides the verbs.
SUMS: Final = (
    "requests",
    "reads",
    "writes",
    "manifest",
    "beside manifest",
    "schema",
    "schema looks",
    "sidecars",
    "sidecar writes",
    "recovery lists",
    "table opens",
    "manifest scans",
    "index writes",
    "tables",
    "hops",
    "listed keys",
    "bytes read",
    "bytes fetched",
    "bytes written",
)
MEASURES: Final = (*SUMS, *VERBS)


@dataclass(frozen=True)
class Tally:
    """The cost of one operation.

    `tables` says how many requests went to each table, and `hops` how many requests deep the critical path is: how many
    of them were waited for one after another.
    """

    verbs: Mapping[str, int]
    roles: Mapping[str, int]
    tables: Mapping[str, int]
    outcomes: Mapping[str, int]
    hops: int
    listed_keys: int
    bytes_read: int
    bytes_written: int
    exchanges: tuple[Exchange, ...] = field(repr=False, compare=False, default=())

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> Tally:
        return cls(
            verbs=_counted(each.verb for each in exchanges),
            roles=_counted(each.role for each in exchanges),
            tables=_counted(each.table for each in exchanges if _is_of_a_table(each)),
            outcomes=_counted(map(outcome_of, exchanges)),
            hops=hops_of(exchanges),
            listed_keys=sum(each.listed for each in exchanges),
            bytes_read=sum(each.bytes_out for each in exchanges),
            bytes_written=sum(each.bytes_in for each in exchanges),
            exchanges=tuple(exchanges),
        )

    @property
    def requests(self) -> int:
        return sum(self.verbs.values())

    @property
    def unclassified(self) -> tuple[Exchange, ...]:
        """Requests for what is no part of a graph, whatever their verb, and those that nobody understands."""
        return tuple(each for each in self.exchanges if each.verb == "OTHER" or not _is_of_a_graph(each))

    def measure(self, name: str) -> int:
        """One number of it, by its name in a budget."""
        match name:
            case "requests":
                return self.requests
            case "reads":
                return sum(number for verb, number in self.verbs.items() if verb in READS)
            case "writes":
                return sum(number for verb, number in self.verbs.items() if verb not in READS)
            case "manifest":
                return sum(each.table == "__manifest" for each in self.exchanges)
            case "beside manifest":
                return self.requests - self.measure("manifest")
            case "schema":
                return self.roles.get("schema file", 0)
            case "schema looks":
                return _most(each for each in self.exchanges if each.role == "schema file")
            case "sidecars":
                return self.roles.get("sidecar", 0)
            case "sidecar writes":
                return sum(each.verb not in READS and each.verb != "DELETE" for each in self._of_role("sidecar"))
            case "table opens":
                return _most(each for each in self.exchanges if _is_of_a_table(each) and _asks_for_versions(each))
            case "manifest scans":
                return _most(each for each in self._of_role("manifest data") if each.verb == "GET")
            case "index writes":
                return sum(each.verb not in READS for each in self._of_role("table index"))
            case "recovery lists":
                return sum(each.verb == "LIST" and RECOVERY_DIR in each.prefix.split("/") for each in self.exchanges)
            case "tables":
                return len(self.tables)
            case "hops":
                return self.hops
            case "listed keys":
                return self.listed_keys
            case "bytes read":
                return self.bytes_read
            case "bytes fetched":
                return sum(each.bytes_out for each in self.exchanges if each.verb == "GET")
            case "bytes written":
                return self.bytes_written
        return self.verbs.get(name, 0)

    def _of_role(self, role: str) -> list[Exchange]:
        return [each for each in self.exchanges if each.role == role]

    def as_json(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "requests": self.requests,
            "verbs": dict(self.verbs),
            "roles": dict(self.roles),
            "tables": dict(self.tables),
            "outcomes": dict(self.outcomes),
            "unclassified": len(self.unclassified),
            "hops": self.hops,
            "listed_keys": self.listed_keys,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
        }


def _most(exchanges: Iterable[Exchange]) -> int:
    """How often the object was asked for that was asked for most, in the same way each time.

    Who checks three files once has asked for each of them once; who looks at one of them, acts, and looks again has
    checked twice. Who reads a file block by block, or a listing page by page, has read it once.
    """
    asked = Counter((each.verb, each.key or each.prefix, each.portion) for each in exchanges)
    return max(asked.values(), default=0)


def _asks_for_versions(exchange: Exchange) -> bool:
    """Whoever opens a table lists its versions, or asks for one of them."""
    if exchange.verb == "LIST":
        return "_versions" in exchange.prefix.split("/")
    return exchange.role == "table version" and exchange.verb in READS


def outcome_of(exchange: Exchange) -> str:
    """What became of a request, in a word."""
    status = exchange.answered
    if exchange.outcome != "answered" or status is None:
        return exchange.outcome
    if status < 300:
        return "ok"
    if status == 404:
        return "not found"
    return "condition failed" if status in (304, 409, 412) else "failed"


def hops_of(exchanges: Iterable[Exchange]) -> int:
    """How many requests were waited for one after another: the longest chain of which each began when one had ended."""
    chain, free_at = 0, float("-inf")
    ended = sorted((each.ended, each.started) for each in exchanges if each.ended is not None)
    for end, start in ended:
        if start >= free_at:
            chain, free_at = chain + 1, end
    return chain


def _is_of_a_graph(exchange: Exchange) -> bool:
    """Whether a graph has such a key: the one that is asked for, the one that is listed below, or all to be deleted."""
    names = exchange.keys or (exchange.key or exchange.prefix,)
    return all(place_of(each).role != "other" for each in names)


def _is_of_a_table(exchange: Exchange) -> bool:
    return exchange.table.startswith(("nodes/", "edges/"))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
