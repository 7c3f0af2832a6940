"""A cut: where a process is stopped, loses an answer, or is refused a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, Self, cast, get_args

from failpoints.gate import Exchange, Rule, RuleError
from failpoints.gate.roles import DURABLE_VERBS, place_of

Moment = Literal["before", "applied", "lost", "failed", "pre_ack", "ack"]
MOMENTS: Final = get_args(Moment)
AT_A_REQUEST: Final[tuple[Moment, ...]] = ("before", "applied", "lost", "failed")
# Nobody is killed in these: the process goes on as it sees fit.
LIVING: Final[tuple[Moment, ...]] = ("lost", "failed")
# Where a recovery decides, says what it has decided, and is done.
_DECISIONS: Final = ("manifest version", "audit version", "sidecar")
# A listing of something that is no table; that of the sidecars is one of these.
LISTING: Final = "LIST listing"
# An answer that no client takes for a reason to try again.
FORBIDDEN: Final = 403


class CutError(ValueError):
    """A cut that cannot be made: which field, and what is wrong with it."""


@dataclass(frozen=True)
class Cut:
    """The n-th durable request of an operation, and the moment of the kill.

    before     the request never reaches the store
    applied    the store has done it, and the process never hears of it
    lost       the same, but nobody dies: the process finds its connection cut, and goes on as it sees fit
    failed     the request never reaches the store, and the process, which lives, hears that it was refused for good
    pre_ack    the process has heard of its last request, and nobody hears of the process
    ack        the process has answered
    """

    moment: Moment
    nth: int = 0
    request: str = ""
    # How many requests of this description there are up to this one. A writer that is slow may make others between
    # them, such as a lease that it renews, so this is how the request is found again; 0 means by its number.
    occurrence: int = 0

    @classmethod
    def at(cls, moment: Moment, nth: int, durable: Sequence[Exchange]) -> Self:
        """A cut at the n-th of some durable requests."""
        request = described(durable[nth - 1])
        occurrence = sum(described(each) == request for each in durable[:nth])
        return cls(moment, nth, request, occurrence)

    def rule(self, owner: str, action: str, when: str = "before") -> Rule:
        """What the gate does at this request, of this owner."""
        found = self._found(Rule(action, when=when, owner=owner))
        return replace(found, status=FORBIDDEN) if action == "answer" else found

    def _found(self, rule: Rule) -> Rule:
        """A rule for this request alone."""
        if not self.occurrence:
            return replace(rule, durable=True, nth=self.nth)
        verb, role, table = parts_of(self.request)
        is_durable = verb in DURABLE_VERBS
        return replace(
            rule,
            verbs=(verb,),
            roles=(role,),
            tables=(table,) if table or not is_durable else (),
            durable=is_durable,
            nth=self.occurrence,
        )

    @classmethod
    def from_json(cls, body: Any, where: str = "cut") -> Self:
        if not isinstance(body, Mapping):
            raise CutError(f"{where}: is no object")
        if unknown := sorted(body.keys() - {"moment", "nth", "request", "occurrence"}):
            raise CutError(f"{where}.{unknown[0]}: there is no such field; there are moment, nth, request, occurrence")
        moment, nth, request = body.get("moment"), body.get("nth", 0), body.get("request", "")
        occurrence = body.get("occurrence", 0)
        if moment not in MOMENTS:
            raise CutError(f"{where}.moment: {moment!r} is none of {', '.join(MOMENTS)}")
        if not isinstance(nth, int) or isinstance(nth, bool) or (nth < 1 and moment in AT_A_REQUEST):
            raise CutError(f"{where}.nth: {nth!r} is not the number of a request; the first is 1")
        if not isinstance(request, str):
            raise CutError(f"{where}.request: {request!r} is no text")
        if not isinstance(occurrence, int) or isinstance(occurrence, bool) or occurrence < 0:
            raise CutError(f"{where}.occurrence: {occurrence!r} is not a number of requests")
        return cls(cast(Moment, moment), nth, request, occurrence)

    def as_json(self) -> dict[str, Any]:
        return {"moment": self.moment, "nth": self.nth, "request": self.request, "occurrence": self.occurrence}

    def __str__(self) -> str:
        match self.moment:
            case "before":
                return f"before request {self.nth} ({self.request})"
            case "applied":
                return f"after request {self.nth} ({self.request}) was applied"
            case "lost":
                return f"when the answer to request {self.nth} ({self.request}) got lost"
            case "failed":
                return f"when request {self.nth} ({self.request}) was refused"
            case "pre_ack":
                return "after its last request, before it answered"
            case "ack":
                return "after it answered"


def described(exchange: Exchange) -> str:
    """A request as a person names it: what it does, to which kind of object, of which table."""
    return f"{exchange.verb} {exchange.role}" + (f" of {exchange.table}" if exchange.table else "")


def parts_of(request: str) -> tuple[str, str, str]:
    """Verb, role and table of a request that was described so."""
    verb, _, rest = request.partition(" ")
    role, _, table = rest.partition(" of ")
    return verb, role, table


def check_place(cut: Cut, where: str) -> None:
    """Refuse a cut at a request that no engine can make; `where` is how the error names the cut."""
    try:
        if cut.occurrence:
            cut.rule("anybody", "hold")
    except RuleError as error:
        raise CutError(f"{where}.request: {cut.request!r} is no request: {error.why}") from error


def cuts_of(durable: Sequence[Exchange]) -> list[Cut]:
    """Every place in which an operation can be cut that makes these durable requests."""
    at_requests = [Cut.at(moment, nth, durable) for nth in range(1, len(durable) + 1) for moment in AT_A_REQUEST]
    last = Cut.at("pre_ack", len(durable), durable) if durable else Cut("pre_ack")
    return [*at_requests, last, Cut("ack")]


def some_cuts_of(durable: Sequence[Exchange]) -> list[Cut]:
    """The same, but of several files in a row of one table that no version names, only the first and the last: what
    lies between them leaves more or fewer files that nobody looks for. And none of these loses an answer: a client
    that hears nothing writes such a file again."""
    alike = [(each.verb, each.role, each.table) if each.named_later else None for each in durable]
    inside = {
        nth
        for nth, (before, this, after) in enumerate(zip(alike, alike[1:], alike[2:], strict=False), 2)
        if this is not None and before == this == after
    }
    return [
        cut
        for cut in cuts_of(durable)
        if cut.moment not in AT_A_REQUEST
        or (cut.nth not in inside and not (cut.moment == "lost" and durable[cut.nth - 1].named_later))
    ]


def listing_cuts_of(exchanges: Sequence[Exchange]) -> list[Cut]:
    """The refusal of the first listing of the sidecars, where an operation makes one: it is no answer [REC-12]."""
    listings = [each for each in exchanges if described(each) == LISTING]
    for number, each in enumerate(listings, 1):
        if place_of(each.prefix).role == "sidecar":
            return [Cut("failed", number, LISTING, number)]
    return []


def again_cuts_of(durable: Sequence[Exchange]) -> list[Cut]:
    """Where a recovery that makes these durable requests is cut: killed at each, left without an answer, or refused.

    Whoever is killed before a request leaves what one leaves that is killed when the request before it is applied, if
    it waited for that one: the two are one cut. The answer to a file that a version names later decides nothing; what
    it is to lose or to be refused one of those, the cuts of the writers have shown.
    """
    waited = {nth for nth, (earlier, later) in enumerate(pairwise(durable), 2) if later.follows(earlier)}
    return [
        cut
        for cut in cuts_of(durable)
        if cut.moment == "applied"
        or (cut.moment == "before" and cut.nth not in waited)
        or (cut.moment in LIVING and not durable[cut.nth - 1].named_later)
    ]


def some_again_cuts_of(durable: Sequence[Exchange]) -> list[Cut]:
    """Of these the kills, and of the others those at the requests in which a recovery decides and says so."""
    return [
        cut for cut in again_cuts_of(durable) if cut.moment not in LIVING or durable[cut.nth - 1].role in _DECISIONS
    ]


def kills_of(durable: Sequence[Exchange]) -> list[Cut]:
    """The places in which a process can be killed that makes these durable requests, short of its end."""
    return [cut for cut in cuts_of(durable) if cut.moment in ("before", "applied")]
