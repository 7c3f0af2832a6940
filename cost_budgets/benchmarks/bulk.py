"""One side of the bulk benchmark, in a process of its own: `load` by the engine, or `bare` pyarrow and pylance."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  score: F64?
  joined: Date?
  active: Bool?
}
edge Knows: Person -> Person {
  since: Date?
}
"""


def load(records: Path, target: Path) -> float:
    from reference.graph import Graph

    graph = Graph.init(str(target), SCHEMA)
    started = time.perf_counter()
    graph.load(records.read_bytes(), mode="append")
    return time.perf_counter() - started


def bare(records: Path, target: Path) -> float:
    import lance
    import pyarrow as pa
    import pyarrow.json

    started = time.perf_counter()
    rows = pa.json.read_json(str(records))
    flat = rows.flatten()
    names = [name.replace("data.", "") for name in flat.column_names]
    lance.write_dataset(flat.rename_columns(names), str(target), enable_stable_row_ids=True)
    return time.perf_counter() - started


def main() -> None:
    seconds = {"load": load, "bare": bare}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "gibibytes": peak}))


if __name__ == "__main__":
    main()
