"""The commit graph, as a projection of the manifests: ancestors and merge bases [LIN]."""

from __future__ import annotations

from collections.abc import Mapping

from reference.format.manifest import GraphCommit

Commits = Mapping[str, GraphCommit]


def ancestors(commits: Commits, start: str) -> set[str]:
    """A commit and everything that it descends from, through both parents."""
    found: set[str] = set()
    pending = [start]
    while pending:
        commit_id = pending.pop()
        if commit_id in found or commit_id not in commits:
            continue
        found.add(commit_id)
        pending += parents(commits[commit_id])
    return found


def parents(commit: GraphCommit) -> list[str]:
    """The commits that a commit was made from: one, or two for a merge."""
    return [parent for parent in (commit.parent_commit_id, commit.merged_parent_commit_id) if parent is not None]


def merge_base(commits: Commits, source: str, target: str) -> GraphCommit | None:
    """The lowest common ancestor: one from which no other common ancestor descends [LIN-13].

    Among several the one with the larger manifest version is taken, then the later one. A base chosen by distance
    instead can lie below another common ancestor, and what happened between the two would be undone by the merge.
    """
    common = ancestors(commits, source) & ancestors(commits, target)
    # Ancestors of a common ancestor are common too, so it is enough to look one step up from each.
    above = {parent for commit_id in common for parent in parents(commits[commit_id])}
    lowest = [commits[commit_id] for commit_id in common - above]
    return max(lowest, key=lambda commit: commit.order, default=None)
