"""Everything the protocol needs of one graph, opened once and shared by all its operations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from reference.protocol.manifests import Manifests
from reference.protocol.publish import Publisher
from reference.protocol.queues import Queues, queues_of
from reference.protocol.schema_files import SchemaFiles
from reference.protocol.sidecars import Sidecars
from reference.storage.objects import TextObjects
from reference.storage.tables import Tables
from reference.storage.uris import GraphRoot, parse_root, storage_options_from_env


@dataclass(frozen=True)
class GraphStore:
    """One graph's place, its objects and tables, and what is held warm of them."""

    root: GraphRoot
    objects: TextObjects
    tables: Tables
    queues: Queues
    manifests: Manifests
    publisher: Publisher
    sidecars: Sidecars
    schema: SchemaFiles
    env: Mapping[str, str] = field(repr=False)


def open_store(uri: str, env: Mapping[str, str] | None = None) -> GraphStore:
    """Bind to a root. Nothing is read or written yet."""
    env = os.environ if env is None else env
    root = parse_root(uri)
    options = storage_options_from_env(env) if root.scheme == "s3" else {}
    objects = TextObjects(root, env)
    tables = Tables(root, options)
    queues = queues_of(root.uri)
    manifests = Manifests(objects, tables)
    return GraphStore(
        root=root,
        objects=objects,
        tables=tables,
        queues=queues,
        manifests=manifests,
        publisher=Publisher(root, manifests),
        sidecars=Sidecars(objects, queues, env),
        schema=SchemaFiles(objects),
        env=env,
    )
