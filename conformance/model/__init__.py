"""The model: what a graph means, in memory, with no storage, no Lance and no code of any engine.

    schema_text    a schema as text, compiled to the canonical IR, by way of schema_syntax and patterns
    schema         types and rules, from an IR    evolution    from one schema to another: steps, and moved rows
    values         typed values: from JSON, sameness, and the bytes of an export
    records        the input of a load            predicates   which rows are meant
    mutation       statements on a working copy   validate     the rules, on whole states
    merge          histories and rows             diff         rows in which two states differ
    graph          the `Model`: branches, commits and every operation, with their results

Modelled is all that a caller can see without looking at files:

    schemas        what is accepted, the IR and its hash; plan and apply, and that a branch stands in the way
    rows           load in its three modes, mutate with cascades, every rule of the schema
    branches       create, list, delete; merge with its base, its outcome and all of its conflicts
    history        commits, parents and their order; every state at its commit or its manifest version, under its schema
    answers        read, entity_at, export byte by byte, diff

Not modelled are physical things, such as indexes, compaction and cleanup, which change no row; actors; and who comes
first when writers race. After a hard drop, older rows of its tables may be gone or not: `Commit.lost`.

A judge runs each operation on an engine and on a `Model`, and compares: the result or the kind of the refusal, then the
export of every branch. The code is written to be obviously right, and not to be fast.
"""

from conformance.model.diff import Change
from conformance.model.errors import Conflict, Refusal
from conformance.model.evolution import Plan
from conformance.model.graph import Model
from conformance.model.merge import Commit
from conformance.model.results import Applied, Loaded, Merged, Mutated
from conformance.model.schema_text import compile_schema

__all__ = [
    "Applied",
    "Change",
    "Commit",
    "Conflict",
    "Loaded",
    "Merged",
    "Model",
    "Mutated",
    "Plan",
    "Refusal",
    "compile_schema",
]
