"""The commits of each branch: one root, one chain, each where it says it is [LIN, PUB-08, PUB-17].

A branch's manifest holds the commits of the branches that it was forked from, up to the fork, and then its own. So the
chain of first parents from its head to the genesis is complete in it. A merged parent may lie in any other manifest,
and in none once its branch was deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from conformance.audit.datasets import Fork
from conformance.audit.findings import Findings
from conformance.audit.manifest import Commit, Manifest
from conformance.audit.names import is_ulid, label

GENESIS_VERSION: Final = 1
# Microseconds: seconds, milliseconds and nanoseconds of any day of these years lie outside.
_SANE: Final = tuple(int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1_000_000) for year in (2015, 2100))


def check_lineage(found: Findings, manifests: Iterable[Manifest], forks: Mapping[str, Fork], *, complete: bool) -> None:
    """The lineage of every branch. `forks` are the branches of `__manifest`, with where each began.

    A merged parent is looked for in all manifests, so only if they are complete.
    """
    manifests = list(manifests)
    everywhere = {commit_id for manifest in manifests for commit_id in manifest.commits}
    seen: set[Commit] = set()
    for manifest in manifests:
        _check_roots(found, manifest)
        _check_chain(found, manifest)
        _check_places(found, manifest)
        _check_owners(found, manifest, forks)
        _check_head(found, manifest, forks)
        for commit in manifest.commits.values():
            # A commit that several branches inherited is looked at once.
            if commit not in seen:
                seen.add(commit)
                _check_commit(found, manifest, commit)
    lost = sorted(
        {commit.commit_id for commit in seen if commit.merged_parent and commit.merged_parent not in everywhere}
    )
    if lost and complete:
        message = f"{len(lost)} merge commit(s) name a parent that is in no manifest: its branch was deleted"
        found.add("merged-parent-unknown", lost[0], message, commits=lost)
    found.checked["commits"] += len(everywhere)


def _check_commit(found: Findings, manifest: Manifest, commit: Commit) -> None:
    where = f"{manifest.where}/{commit.commit_id}"
    if not is_ulid(commit.commit_id):
        found.add("commit-id", where, f"'{commit.commit_id}' is not a ULID")
    if not _SANE[0] <= commit.created_at < _SANE[1]:
        message = f"created_at is {commit.created_at}, which is no recent time in microseconds"
        found.add("commit-time", where, message, created_at=commit.created_at)
    if manifest.landed_is_known and commit.landed != commit.version:
        found.add(
            "commit-version",
            where,
            f"the commit says manifest version {commit.version}, and its row was created by version {commit.landed}",
            recorded=commit.version,
            landed=commit.landed,
        )


def _check_roots(found: Findings, manifest: Manifest) -> None:
    """Exactly one commit without a parent, made by init [LIN-08, MAN-07]."""
    roots = [commit for commit in manifest.commits.values() if commit.parent is None]
    if len(roots) != 1:
        ids = sorted(commit.commit_id for commit in roots)
        found.add("genesis", manifest.where, f"{len(roots)} commits have no parent, not one", roots=ids)
        return
    root = roots[0]
    unlike = [
        name
        for name, as_expected in (
            ("manifest_version", root.version == GENESIS_VERSION),
            ("branch", root.branch is None),
            ("actor_id", root.actor is None),
            ("merged_parent_commit_id", root.merged_parent is None),
        )
        if not as_expected
    ]
    if unlike:
        where = f"{manifest.where}/{root.commit_id}"
        found.add("genesis", where, f"the first commit is not a genesis: {', '.join(unlike)}", fields=unlike)


def _check_chain(found: Findings, manifest: Manifest) -> None:
    """First parents are there, come before their children, and have one child each."""
    children: dict[str, list[str]] = defaultdict(list)
    for commit in manifest.commits.values():
        if commit.parent is None:
            continue
        where = f"{manifest.where}/{commit.commit_id}"
        children[commit.parent].append(commit.commit_id)
        parent = manifest.commits.get(commit.parent)
        if parent is None:
            message = f"the parent {commit.parent} is not in the manifest of '{manifest.where}'"
            found.add("parent-unknown", where, message, parent=commit.parent)
        elif parent.version >= commit.version:
            message = f"the parent is at manifest version {parent.version}, its child at {commit.version}"
            found.add("parent-order", where, message, parent=commit.parent)
    for parent_id, ids in sorted(children.items()):
        if len(ids) > 1:
            message = f"{len(ids)} commits have the first parent {parent_id}: the chain forks"
            found.add("chain-forked", f"{manifest.where}/{parent_id}", message, children=sorted(ids))


def _check_places(found: Findings, manifest: Manifest) -> None:
    """One commit per manifest version, and one for every version that published tables [LIN-02, LIN-11]."""
    at: dict[int, list[str]] = defaultdict(list)
    for commit in manifest.commits.values():
        at[commit.version].append(commit.commit_id)
    for version, ids in sorted(at.items()):
        if len(ids) > 1:
            message = f"{len(ids)} commits say manifest version {version}"
            found.add("commit-version-shared", manifest.where, message, version=version, commits=sorted(ids))
    if not manifest.landed_is_known:
        return
    landed = {commit.landed for commit in manifest.commits.values()} | at.keys()
    for version, object_id in sorted(manifest.published_at.items()):
        if version not in landed:
            message = f"manifest version {version} published '{object_id}' and recorded no commit"
            found.add("commit-missing", f"{manifest.where}/{object_id}", message, version=version)


def _check_owners(found: Findings, manifest: Manifest, forks: Mapping[str, Fork]) -> None:
    """A commit belongs to the branch on whose stretch of versions it lies [LIN-01]."""
    if manifest.branch is not None and manifest.branch not in forks:
        return
    stretches: list[tuple[int, str | None]] = []
    branch = manifest.branch
    while branch is not None and branch in forks:
        stretches.append((forks[branch].parent_version, branch))
        branch = forks[branch].parent_branch
    for commit in manifest.commits.values():
        owner = next((name for start, name in stretches if commit.version > start), None)
        if commit.branch != owner:
            message = f"the commit at version {commit.version} says branch '{label(commit.branch)}'"
            message += f", and that version belongs to '{label(owner)}'"
            found.add("commit-branch", f"{manifest.where}/{commit.commit_id}", message)


def _check_head(found: Findings, manifest: Manifest, forks: Mapping[str, Fork]) -> None:
    """The head row of a branch names its head; a branch without commits of its own has none yet [LIN-05, LIN-07]."""
    head, row = manifest.head(), manifest.heads.get(manifest.where)
    if head is None:
        return
    fork = forks.get(manifest.where)
    has_own = fork is None or head.version > fork.parent_version
    where = f"{manifest.where}/graph_head:{manifest.where}"
    if row is None:
        if has_own:
            found.add("head-missing", where, f"the branch has commits and no row 'graph_head:{manifest.where}'")
    elif row["head_commit_id"] != head.commit_id:
        message = f"the head row names {row['head_commit_id']}, and the head is {head.commit_id}"
        found.add("head-wrong", where, message, named=row["head_commit_id"], head=head.commit_id)
    elif row.get("parent_commit_id") != head.parent:
        message = f"the head row names the parent {row.get('parent_commit_id')}, and the head's parent is {head.parent}"
        found.add("head-wrong", where, message, named=row.get("parent_commit_id"), parent=head.parent)
