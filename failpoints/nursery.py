"""The nursery: driver processes in Python that start in no time, for sweeps that need hundreds of them.

Almost all of the time that it takes to start a driver in Python goes into imports. The nursery is a process that has
done them and nothing else; for each driver it makes a copy of itself, which becomes the driver:

    with nursery("reference.driver") as quick:
        Engine.connect(quick(as_process("reference")), env=…, failpoints=…)

    with quickened("mutant:no-sidecar") as spec:      # the same for the engines of this project, in one line
        Engine.connect(spec, env=…)

What is started is still a command with pipes, a process group, an exit status and a death of its own: a small client
hands its pipes over and ends as the driver has ended. The nursery has one thread and has touched no store, which is
what makes a copy of it as good as a new process. A driver in another language is started as ever.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from conformance.adapters import AdapterFault, parse
from conformance.adapters.hosting import as_process
from failpoints import registry

# Libraries that would start threads when they are imported are asked not to.
_SINGLE_THREADED: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}
# What the drivers of this project import, by the kind of engine.
_OWN: Final = {"reference": ("reference.driver",), "mutant": ("reference.driver", "fixtures.mutants")}
_CLIENT: Final = Path(__file__).with_name("nursery_client.py")
_LENGTH_BYTES: Final = 8
_DESCRIPTORS_MAX: Final = 4096
_ORDER_SECONDS_MAX: Final = 10.0


class NurseryFailed(AdapterFault):
    """The nursery did not start: what it said."""


@contextlib.contextmanager
def nursery(*modules: str) -> Iterator[Callable[[str], str]]:
    """Start a nursery that has imported `modules`; gives a function that turns a `cmd:` into one that uses it."""
    with tempfile.TemporaryDirectory(prefix="touchstone-") as directory:
        address = str(Path(directory, "nursery"))
        process = subprocess.Popen(
            # Not from the current directory: a folder of somebody's may be called like one of ours.
            [sys.executable, "-P", "-W", "ignore", "-m", __name__, address, *modules],
            env=os.environ | _SINGLE_THREADED | {"PYTHONPATH": _path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with process:  # Its end closes the pipes, and with its stdin the nursery ends.
            if process.stdout is None or process.stdout.readline() != b"ready\n":
                process.kill()
                raise NurseryFailed(f"the nursery for {', '.join(modules)} did not start; stderr says why")
            yield lambda spec: _through(address, spec)


@contextlib.contextmanager
def quickened(spec: str) -> Iterator[str]:
    """An engine as a driver process: one of this project's own by way of a nursery, any other as it is."""
    process = as_process(spec)
    modules = _OWN.get(spec.partition(":")[0])
    if modules is None or not hasattr(os, "pidfd_open"):
        yield process
        return
    with nursery(*modules) as through:
        yield through(process)


def _path() -> str:
    """Where modules are found: this package first, wherever it is, and what the person has set."""
    return os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])


def _through(address: str, spec: str) -> str:
    """The same driver by way of the nursery, if it is one in this very Python."""
    words = tuple(word for word in parse(spec).command if word != "-P")
    if words[:1] != (sys.executable,) or words[1:2] not in (("-c",), ("-m",)):
        return spec
    return f"cmd:{shlex.join([sys.executable, '-I', '-S', str(_CLIENT), address, *words[1:]])}"


# -- in the nursery ----------------------------------------------------------------------------------------------------


def main(address: str, modules: list[str]) -> None:
    """Serve until stdin ends: each connection brings three pipes, and the order for a driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Who is interrupted decides when it ends, by closing its stdin.
    for module in modules:
        importlib.import_module(module)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit(f"an import of {', '.join(modules)} has started a thread, and a process with threads cannot be copied")
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(address)
        listener.listen(64)
        selector.register(0, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        with contextlib.suppress(BrokenPipeError):  # Who was interrupted waits no more, and its stdin ends.
            os.write(1, b"ready\n")
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    return
                if key.fileobj is listener:
                    _take_order(listener, selector)
                else:
                    _tell_end(key, selector)


def _take_order(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    client, _ = listener.accept()
    client.settimeout(_ORDER_SECONDS_MAX)
    pipes: list[int] = []
    try:
        length, pipes, _, _ = socket.recv_fds(client, _LENGTH_BYTES, 3, socket.MSG_WAITALL)
        order = json.loads(client.recv(int.from_bytes(length), socket.MSG_WAITALL))
    except (ValueError, OSError):  # It was killed before it had said what it wants.
        for descriptor in pipes:
            os.close(descriptor)
        client.close()
        return
    child = os.fork()
    if child == 0:
        _become_driver(order, pipes)
    for pipe in pipes:
        os.close(pipe)
    selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, client))


def _tell_end(key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
    child, client = key.data
    _, status = os.waitpid(child, 0)
    selector.unregister(key.fileobj)
    os.close(key.fd)
    with client, contextlib.suppress(BrokenPipeError):  # A client that was killed need not be told.
        client.sendall(status.to_bytes(_LENGTH_BYTES))


def _become_driver(order: dict[str, Any], pipes: list[int]) -> None:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setpgid(0, order["group"])  # Who ends the client's group ends the driver.
        for number, pipe in enumerate(pipes):
            os.dup2(pipe, number)
        os.closerange(3, _DESCRIPTORS_MAX)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["directory"])
        registry.arm_from_environment(os.environ)
        _run(order["arguments"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _run(arguments: list[str]) -> None:
    """What Python would do with these arguments."""
    kind, what, *rest = arguments
    sys.argv = [kind, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<driver>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
