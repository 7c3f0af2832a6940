"""Any engine as a process of its own: what is to be killed, or watched request by request, cannot live in the harness.

`as_process` turns the text that names an engine into one that names a driver process. A driver stays what it is, the
reference is its own driver, and a class is hosted by this module:

    python -m conformance.adapters.hosting my.module:MyEngine
"""

from __future__ import annotations

import os
import shlex
import sys

from conformance.adapters import parse
from conformance.adapters.base import TransportFailure
from conformance.adapters.python import PythonTransport, instantiate


def as_process(spec: str) -> str:
    """The same engine, as a driver process."""
    engine = parse(spec)
    match engine.kind:
        case "reference":
            return f"cmd:{shlex.join([sys.executable, '-P', '-c', 'from reference.driver import main; main()'])}"
        case "python":
            host = [sys.executable, "-m", "conformance.adapters.hosting", f"{engine.module}:{engine.class_name}"]
            return f"cmd:{shlex.join(host)}"
        case "cmd":
            return spec


def main() -> None:
    """Serve a class: one request per line on stdin, one answer per line on stdout."""
    module, _, class_name = sys.argv[1].partition(":")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What the class prints is no answer.
    try:
        transport = PythonTransport(instantiate(module, class_name, os.environ))
        for line in sys.stdin.buffer:
            answers.write(transport.exchange(line) + b"\n")
            answers.flush()
    except TransportFailure as failure:
        sys.exit(failure.message)


if __name__ == "__main__":
    main()
