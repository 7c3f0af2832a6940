"""The model: what a graph means, in memory, with no storage, no Lance and no code of any engine.

    schema      types and rules, from the compiled IR
    values      typed values: from JSON, sameness, and the bytes of an export
    records     the input of a load           predicates   which rows are meant
    mutation    statements on a working copy  validate     the rules, on whole states
    merge       histories and rows            diff         rows in which two states differ
    graph       the `Model`: branches, commits and every operation

A judge runs each operation on an engine and on a `Model`, and compares: the result or the kind of the refusal, then the
export of every branch. The code is written to be obviously right, and not to be fast.
"""

from conformance.model.diff import Change
from conformance.model.errors import Conflict, Refusal
from conformance.model.graph import Loaded, Merged, Model, Mutated
from conformance.model.merge import Commit

__all__ = ["Change", "Commit", "Conflict", "Loaded", "Merged", "Model", "Mutated", "Refusal"]
