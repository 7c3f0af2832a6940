"""One session over every operation of the protocol, for any adapter whose engine has them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance import protocol
from conformance.adapters import Adapter

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
RECORDS = '{"type":"Person","data":{"name":"ann"}} {"type":"Person","data":{"name":"bob"}}'


def speak(adapter: Adapter, uri: str) -> set[str]:
    """Ask for each operation once, and return those that were answered."""
    spoken: set[str] = set()

    def ask(op: str, **args: Any) -> Any:
        answer = adapter.call(op, args)
        spoken.add(op)
        return answer

    assert set(protocol.operations()) <= set(ask("hello")["capabilities"])
    ask("init", uri=uri, schema=SCHEMA)
    handle = ask("open", uri=uri)["handle"]
    on_graph(ask, handle)
    ask("close", handle=handle)
    return spoken


def on_graph(ask: Callable[..., Any], handle: str) -> None:
    insert = {"op": "insert", "type": "Person", "data": {"name": "Çarol ☂"}}
    ask("load", handle=handle, data=RECORDS, mode="append")
    ask("branch_create", handle=handle, name="feature")
    ask("mutate", handle=handle, statements=[insert], branch="feature")
    ask("merge", handle=handle, source="feature", target="main")
    assert ask("branch_list", handle=handle)["branches"] == ["feature", "main"]
    commits = ask("commits", handle=handle)["commits"]
    ask("commit", handle=handle, commit_id=commits[0]["graph_commit_id"])
    assert [row["id"] for row in ask("read", handle=handle, table_key="node:Person")["rows"]][2:] == ["Çarol ☂"]
    ask("entity_at", handle=handle, table_key="node:Person", id="ann")
    ask("snapshot", handle=handle)
    ask("diff", handle=handle, older={"commit": commits[0]["graph_commit_id"]}, newer={})
    ask("export", handle=handle)
    ask("refresh", handle=handle)
    ask("recoveries", handle=handle)
    ask("sync_branch", handle=handle, branch="main")
    ask("branch_delete", handle=handle, name="feature")
    wanted = SCHEMA.replace("age: I32?", "age: I32?  city: String?")
    ask("schema_plan", handle=handle, source=wanted)
    ask("schema_apply", handle=handle, source=wanted)
    ask("ensure_indices", handle=handle)
    ask("optimize", handle=handle)
    ask("repair", handle=handle)
    ask("cleanup", handle=handle, keep_versions=2)
