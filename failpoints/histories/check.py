"""The checker: replays the commit chain of a history in the model, and demands what it says, commit by commit.

The chain is the order of everything. So there is nothing to search: each commit is done in the model by the step of its
call, in chain order, and must be accepted there; at the end every branch must hold exactly the model's rows. Around
that, real time must agree with the chain: what began after another call was answered comes after it; and what was
refused or found nothing to do must have had reason to, in a state that there was while it was asked, or in rows that
others had in a table then (`crowding`).

Recovery publishes under its own name, and not always with an audit row that tells which commit holds the rows. Which
call such a commit is, its rows say: `look` reads a table as of a commit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.adapters import EngineError
from conformance.judge import blame
from conformance.judge.compare import first_difference
from conformance.model import Commit as ModelCommit
from conformance.model import Model, Refusal
from failpoints.histories.chain import Chains, Link, read_chains
from failpoints.histories.crowding import may_be_crowded_out
from failpoints.histories.finding import differences, first_wrong_commit, told_by_rows
from failpoints.histories.record import MAIN, Done, History
from failpoints.histories.steps import Meaning, branch_of, mean
from failpoints.histories.telling import Contradicted, Contradiction, Look, Telling

_TRIAL: Final = "trial"
# The kind of error that says that a recovery will decide; it is a definite answer, whoever is killed.
OUTCOME_PENDING: Final = "outcome_pending"
# What an adapter says that knows of a call only that it was done.
NOT_SEEN: Final = ("storage", "not_seen")


@dataclass(frozen=True)
class Sound:
    """Nothing contradicts: how much there was to look at."""

    counts: Mapping[str, int]


def check(history: History, look: Look | None = None) -> Sound | Contradiction:
    """Hold a history against the model."""
    telling = Telling(history)
    try:
        _branches_as_asked(history, telling)
        chains = read_chains(history, telling)
        replay = _Replay(history, chains, telling, look)
        replay.run()
        replay.compare_exports()
        replay.compare_counts()
        _one_row_each(history, telling)
        # Last, because a graph that nobody can write any more is so because of something that the chain tells better.
        _all_answered(history, telling)
    except Contradicted as found:
        return found.contradiction
    return Sound(counts(history))


def counts(history: History) -> dict[str, int]:
    """How the calls of the processes ended, and how many commits there are."""
    verdicts = [done.outcome.verdict for done in history.calls if done.call.process >= 0]
    own = {commit["graph_commit_id"] for commits in history.chains.values() for commit in commits}
    return {
        "acknowledged": verdicts.count("ok"),
        "refused": verdicts.count("refused"),
        "unknown": verdicts.count("unknown"),
        "passed over": verdicts.count("passed over"),
        "killed": sum(done.outcome.killed for done in history.calls),
        "commits": len(own),
        "branches": len(history.chains),
        "recoveries": len(history.recoveries),
    }


def _branches_as_asked(history: History, telling: Telling) -> None:
    created = [done for done in history.calls if done.step["do"] == "branch_create"]
    possible = {MAIN, *(done.step["name"] for done in created if done.outcome.verdict in ("ok", "unknown"))}
    for done in created:
        if done.outcome.verdict == "ok" and done.step["name"] not in history.chains:
            because = f"the branch '{done.step['name']}' was made, by {done.actor}, and is not there"
            raise telling.broke(("BRA-01",), because, [done.actor])
    for branch in sorted(history.chains.keys() - possible):
        raise telling.broke(("BRA-04",), f"there is a branch '{branch}', and nobody has made it")


def _one_row_each(history: History, telling: Telling) -> None:
    """However many processes recover at once, one audit row tells what became of an operation."""
    for operation, times in Counter(row["operation_id"] for row in history.recoveries).items():
        if times > 1:
            actors = [row["recovery_for_actor"] for row in history.recoveries if row["operation_id"] == operation]
            raise telling.broke(("REC-14",), f"{times} audit rows tell of the operation {operation}", actors)


def _all_answered(history: History, telling: Telling) -> None:
    """Who was not killed is told what became of the call, or that recovery decides [PUB-23]; and the last ones work."""
    for done in history.calls:
        if done.call.process < 0 and done.outcome.verdict not in ("ok", "passed over"):
            because = f"when nobody else was writing, {done.actor} was not done: {dict(done.outcome.answer)}"
            raise telling.broke(("PUB-21",), because, [done.actor])
        said = done.outcome.answer.get("kind"), done.outcome.answer.get("code")
        is_left_open = said[0] == OUTCOME_PENDING or said == NOT_SEEN
        if done.outcome.verdict == "unknown" and not done.outcome.killed and not is_left_open:
            because = (
                f"nobody killed the process of {done.actor}, and it was not told what became of it: "
                f"{dict(done.outcome.answer)}"
            )
            raise telling.broke(("PUB-21",), because, [done.actor])


@dataclass
class _Doubt:
    """A call that was refused, or that changed nothing: some state of its time must explain why."""

    done: Done
    first: float
    last: float
    explained: bool = False


class _Replay:
    """The model, on its way along the chain."""

    def __init__(self, history: History, chains: Chains, telling: Telling, look: Look | None) -> None:
        self.history = history
        self.chains = chains
        self.telling = telling
        self.look = look
        self.model = Model.from_source(history.schema)
        # Where each call has its commit: by its own name, or found in a commit of recovery.
        self.placed = {link.done.actor: link for link in chains.links if link.done is not None}
        self._meanings: dict[str, Meaning] = {}
        self._pins = {link.merged for link in chains.links} | set(chains.forks.values())
        self._doubts: dict[str, list[_Doubt]] = {}
        for done in history.calls:
            if _is_doubtful(done):
                doubt = _Doubt(done, *self._window(done))
                self._doubts.setdefault(str(branch_of(done.step)), []).append(doubt)

    def run(self) -> None:
        for link in self.chains.links:
            made = self._replay(link)
            commit = link.commit
            self.model.identify(made, link.commit_id, commit["manifest_version"], commit["created_at"])
            self._settle_doubts(link.branch, link.position)
            if link.commit_id in self._pins:
                self.model.branch_create(_pin(link.commit_id), link.branch)
                for branch in (name for name, fork in self.chains.forks.items() if fork == link.commit_id):
                    self.model.branch_create(branch, _pin(link.commit_id))
                    self._settle_doubts(branch, link.position)
        self._recoveries_hold()
        self._in_real_time()
        for doubt in (each for doubts in self._doubts.values() for each in doubts):
            if not doubt.explained:
                raise self._unexplained(doubt)

    # -- one commit ----------------------------------------------------------------------------------------------------

    def _replay(self, link: Link) -> ModelCommit:
        if link.maker == "genesis":
            return self.model.head()
        if link.maker == "maintenance":
            return self.model.maintain(link.branch)
        done = link.done if link.done is not None else self._recovered(link)
        if done is None:
            return self.model.maintain(link.branch)
        return self._done(link, done)

    def _done(self, link: Link, done: Done) -> ModelCommit:
        try:
            meaning = mean(self.model, done.step, link.branch, _pin(link.merged) if link.merged else None)
        except Refusal as refusal:
            ids = (blame.REFUSALS.get(refusal.code, blame.operation_of(done.step["do"], done.step)),)
            because = (
                f"commit number {link.position} on '{link.branch}' is of {done.actor}, and on the rows that are there "
                f"before it, it has to be refused: {refusal.message}"
            )
            raise self.telling.broke(ids, because, [*self._before(link), done.actor]) from None
        if meaning.commit is None:
            ids = ("MRG-06",) if done.step["do"] == "merge" else ("LIN-03",)
            because = f"{done.actor} has the commit {link.commit_id}, and at its place in the chain it changes nothing"
            raise self.telling.broke(ids, because, [*self._before(link), done.actor])
        if done.step["do"] == "merge":
            self._merged_from(link, done)
        self._meanings[done.actor] = meaning
        return meaning.commit

    def _merged_from(self, link: Link, done: Done) -> None:
        source = done.step["source"]
        if link.merged not in {commit["graph_commit_id"] for commit in self.history.chains.get(source, ())}:
            because = f"the merge of {done.actor} has the merged parent {link.merged}, which is not on '{source}'"
            raise self.telling.broke(("LIN-09",), because, [done.actor])

    def _before(self, link: Link) -> list[str]:
        """Who made the two commits before this one: mostly enough to see why it does not fit."""
        makers = {placed.position: actor for actor, placed in self.placed.items() if placed.branch == link.branch}
        return [makers[position] for position in sorted(makers) if position < link.position][-2:]

    # -- commits of recovery -------------------------------------------------------------------------------------------

    def _recovered(self, link: Link) -> Done | None:
        """The call whose rows a recovery has published with this commit; None if it changed no row."""
        done = self._by_rows(link) if self.look is not None else self._by_audit(link)
        if done is not None:
            self.placed[done.actor] = link
            self.telling.adopt(done.actor, link.commit_id)
        return done

    def _by_audit(self, link: Link) -> Done | None:
        rows = [row for row in self.history.recoveries if row["graph_commit_id"] == link.commit_id]
        forward = {row["recovery_for_actor"] for row in rows if row["recovery_kind"] == "RolledForward"}
        return next((done for done in self._candidates(link) if done.actor in forward), None)

    def _by_rows(self, link: Link) -> Done | None:
        assert self.look is not None
        wrong = self._wrong_rows(link, link.branch)
        if not wrong and link.merged is None:
            return None
        for done in self._candidates(link):
            if self._explains(link, done):
                return done
        refused = [done for done in self._candidates(link, refused=True) if self._explains(link, done)]
        if refused:
            because = f"{refused[0].actor} was refused, and the recovery commit {link.commit_id} holds its rows"
            raise self.telling.broke(("PUB-23",), because, [refused[0].actor])
        because = (
            f"the recovery commit {link.commit_id}, number {link.position} on '{link.branch}', is neither what was "
            f"there before it nor what any unanswered call would make of that: {told_by_rows(wrong)}"
        )
        raise self.telling.broke(("REC-04", "REC-05"), because, [done.actor for done in self._candidates(link)])

    def _wrong_rows(self, link: Link, branch: str) -> list[Any]:
        assert self.look is not None
        try:
            return list(differences(self.model, self.look, link.commit_id, branch=branch))
        except EngineError as error:
            because = f"the graph cannot be read as of commit {link.commit_id}: {error}"
            raise self.telling.broke(("SNP-07",), because) from error

    def _candidates(self, link: Link, *, refused: bool = False) -> list[Done]:
        """Calls that nobody has found in the chain yet: first the one that was told of this commit, or is audited."""
        audited = {row["recovery_for_actor"]: row["graph_commit_id"] for row in self.history.recoveries}
        found = []
        for done in self.history.calls:
            commit = done.outcome.commit
            open_ended = done.outcome.verdict == ("refused" if refused else "unknown")
            told = commit is not None and commit["graph_commit_id"] == link.commit_id
            if done.actor not in self.placed and branch_of(done.step) == link.branch and (open_ended or told):
                found.append((not told, audited.get(done.actor) != link.commit_id, done.actor not in audited, done))
        return [each[-1] for each in sorted(found, key=lambda each: each[:3])]

    def _explains(self, link: Link, done: Done) -> bool:
        if (done.step["do"] == "merge") != (link.merged is not None):
            return False
        with_trial = self._try(done, link.branch, link.merged)
        try:
            return isinstance(with_trial, Meaning) and not self._wrong_rows(link, _TRIAL)
        finally:
            self.model.branch_delete(_TRIAL)

    def _try(self, done: Done, branch: str, merged: str | None = None) -> Meaning | Refusal:
        """Do a step on a branch that is only there to see what becomes of it; the caller deletes that."""
        self.model.branch_create(_TRIAL, branch)
        try:
            return mean(self.model, done.step, _TRIAL, _pin(merged) if merged else None)
        except Refusal as refusal:
            return refusal

    def _recoveries_hold(self) -> None:
        """Whoever was answered with a recovery's commit has its rows there, and whom recovery finished is there."""
        for done in self.history.calls:
            commit = done.outcome.commit
            if commit is not None and branch_of(done.step) is not None and done.actor not in self.placed:
                because = f"{done.actor} was answered with {commit['graph_commit_id']}, which holds none of its rows"
                raise self.telling.broke(("PUB-22",), because, [done.actor])
        actors = {done.actor for done in self.history.calls if branch_of(done.step) is not None}
        for row in self.history.recoveries:
            actor = row["recovery_for_actor"]
            if row["recovery_kind"] == "RolledForward" and actor in actors and actor not in self.placed:
                because = f"recovery says that it has finished {actor}, and no commit holds the rows of it"
                raise self.telling.broke(("REC-05",), because, [actor])

    # -- real time -----------------------------------------------------------------------------------------------------

    def _in_real_time(self) -> None:
        """A call that began when another had been answered comes after it in the chain."""
        places = {done.actor: self.placed[done.actor] for done in self.history.calls if done.actor in self.placed}
        latest: dict[str, Done] = {}
        calls = {done.actor: done for done in self.history.calls}
        for actor in sorted(places, key=lambda each: places[each].position):
            done, branch = calls[actor], places[actor].branch
            before = latest.get(branch)
            if before is not None and done.outcome.verdict == "ok" and before.outcome.began > done.outcome.ended:
                because = f"{actor} was acknowledged before {before.actor} was asked, and comes after it in the chain"
                raise self.telling.broke(("LIN-06",), because, [before.actor, actor])
            if before is None or done.outcome.began > before.outcome.began:
                latest[branch] = done

    def _window(self, done: Done) -> tuple[float, float]:
        """From the last commit that was acknowledged before a call began, to the last before one that began later."""
        branch, first, last = branch_of(done.step), 0.0, math.inf
        for link in self.chains.links:
            if link.branch != branch or link.done is None:
                continue
            other = link.done.outcome
            if other.verdict == "ok" and other.ended < done.outcome.began:
                first = max(first, link.position)
            if other.began > done.outcome.ended:
                last = min(last, link.position - 1)
        return first, last

    def _settle_doubts(self, branch: str, position: int) -> None:
        for doubt in self._doubts.get(branch, []):
            if doubt.explained or not doubt.first <= position <= doubt.last:
                continue
            found = self._try(doubt.done, branch)
            self.model.branch_delete(_TRIAL)
            if doubt.done.outcome.verdict == "refused":
                crowded = may_be_crowded_out(self.model, branch, doubt.done, self.history.calls)
                doubt.explained = isinstance(found, Refusal) or crowded
            else:
                doubt.explained = isinstance(found, Meaning) and found.commit is None

    def _unexplained(self, doubt: _Doubt) -> Contradicted:
        done = doubt.done
        ids: tuple[str, ...] = (blame.operation_of(done.step["do"], done.step),)
        what = "was refused" if done.outcome.verdict == "refused" else "was told that there was nothing to change"
        if done.outcome.verdict == "ok":
            ids = ("SNP-02", *ids)
        because = (
            f"{done.actor} {what}, and in every state that '{branch_of(done.step)}' was in meanwhile, "
            f"it could be done: {dict(done.outcome.answer)}"
        )
        return self.telling.broke(ids, because, [done.actor])

    # -- the end -------------------------------------------------------------------------------------------------------

    def compare_exports(self) -> None:
        for branch, exported in self.history.exports.items():
            # What differs by no more than an id that the engine made does not differ.
            self.model.learn_ids(branch, exported)
            difference = first_difference(exported, self.model.export(branch))
            if difference is None:
                continue
            because = f"at the end '{branch}' is not what its commits make of it: {difference}"
            if self.look is None:
                raise self.telling.broke(("PUB-20",), because)
            raise first_wrong_commit(self.model, self.history, self.telling, self.placed, self.look, branch, because)

    def compare_counts(self) -> None:
        """What a call was told that it changed is what its commit changes, or it was decided on other rows."""
        for done in self.history.calls:
            facts = self._meanings[done.actor].facts if done.actor in self._meanings else {}
            for name, meant in facts.items() if done.outcome.verdict == "ok" else ():
                told = done.outcome.answer.get(name)
                if told != meant:
                    ids = ("MUT-10", "PUB-18") if done.step["do"] == "mutate" else ("LOD-12",)
                    because = f"{done.actor} was told {name} {told}, and on the rows before its commit it is {meant}"
                    raise self.telling.broke(ids, because, [*self._before(self.placed[done.actor]), done.actor])


def _is_doubtful(done: Done) -> bool:
    """Answers that can be held against the states of their time; contention is always a reason for a conflict."""
    if done.step["do"] not in ("load", "mutate"):
        return False
    refused = done.outcome.verdict == "refused" and done.outcome.answer.get("kind") == "bad_request"
    return refused or (done.outcome.verdict == "ok" and done.outcome.commit is None)


def _pin(commit_id: str) -> str:
    """A branch of the model that stays at a commit: merges and branches begin there, wherever others have gone."""
    return f"at-{commit_id}"
