"""`cmd:<command line>`: a driver process that is asked on its stdin and answers on its stdout.

The driver runs in a process group of its own, without a shell, and the whole group ends with the adapter. One selector
watches all pipes and the process itself, so that nothing a driver does or leaves undone can block the harness for
longer than the time-out: a driver that reads nothing, prints no line feed, floods stderr, or is gone.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import IO, Final

from conformance.adapters.base import FaultReason, TransportFailure, shortened
from conformance.adapters.credentials import Scrubber, Tail

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
STDERR_BYTES_MAX: Final = 64 * 1024
# How long a driver has to end by itself once its stdin is closed, or once it has closed its stdout.
EXIT_GRACE_SECONDS: Final = 2.0
# A driver that cannot go on for a reason of its own ends so: what it was asked says nothing about the engine.
GAVE_UP_STATUS: Final = 3
_CHUNK_BYTES: Final = 1 << 16
# More than a pipe can hold; who writes on while it is read is not waited for.
_PIPE_BYTES_MAX: Final = 1 << 21
_MADE: Final[weakref.WeakSet[ProcessTransport]] = weakref.WeakSet()
_MAKING: Final = threading.Lock()


def kill_made_in(thread: threading.Thread) -> None:
    """Kill whatever driver a thread has started, also one that has not said hello and that nobody holds yet."""
    with _MAKING:
        made = list(_MADE)
    for transport in made:
        if transport.made_in is thread:  # Numbers of threads are given out again.
            transport.kill()


class ProcessTransport:
    """The pipes of one driver process."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        scrubber: Scrubber,
        *,
        timeout_seconds: float,
        line_bytes_max: int = LINE_BYTES_MAX,
        exit_grace_seconds: float = EXIT_GRACE_SECONDS,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._line_bytes_max = line_bytes_max
        self._exit_grace_seconds = exit_grace_seconds
        self._process = _started(command, environment)
        self._stdin, self._stdout, self._stderr = (
            _pipe(each) for each in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        self._scrubber = scrubber
        self._tail = Tail(scrubber, STDERR_BYTES_MAX)
        self._received = bytearray()
        self._answered = 0
        self._exited = False
        self._reaped = False
        self._closed = False
        self.ended_by_itself = False
        self._using = threading.Lock()
        self._signalling = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self._ended: os.waitid_result | None = None
        self._exit, exit_told = os.pipe()
        self._selector.register(self._exit, selectors.EVENT_READ)
        self.made_in = threading.current_thread()
        with _MAKING:
            _MADE.add(self)
        self._waiter = threading.Thread(target=self._wait_and_tell, args=(exit_told,), daemon=True)
        self._waiter.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL the driver's whole group, now, from any thread. What waits for it then finds it gone."""
        # Until it is reaped, in `close`, nobody else can have the number of the group.
        with self._signalling, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._reaped:
                os.killpg(self._process.pid, signal.SIGKILL)

    def stderr(self) -> str:
        return self._tail.text()

    def _wait_and_tell(self, exit_told: int) -> None:
        """In a thread: see the end of the process without reaping it, and end a pipe that the selector watches."""
        self._ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        os.close(exit_told)

    # -- one request ---------------------------------------------------------------------------------------------

    def exchange(self, request: bytes) -> bytes:
        with self._using:
            if self._closed:
                raise TransportFailure("closed", "the driver has been ended")
            self._refuse_what_was_not_asked_for()
            return self._answer_to(request)

    def _refuse_what_was_not_asked_for(self) -> None:
        self._read_what_is_there()
        if self._received:
            # What is cut first may end within a secret, and that would not be known for one any more.
            said = shortened(self._scrubber.data(bytes(self._received)).decode("utf-8", "replace"), 120)
            message = f"{self._when()} the driver wrote to stdout without being asked: {said!r}; "
            raise TransportFailure("spoke_unasked", message + "one request gets one line, and logs go to stderr")
        if self._exited or not self._watches(self._stdout):
            reason: FaultReason = "exited_between_requests" if self._answered else "exited_before_first_answer"
            raise self._gone(reason, self._when())

    def _when(self) -> str:
        return f"after answer {self._answered}" if self._answered else "before the first request"

    def _answer_to(self, request: bytes) -> bytes:
        deadline = time.monotonic() + self.timeout_seconds
        unsent = memoryview(request)
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        try:
            searched = 0
            while (end := self._received.find(b"\n", searched)) < 0:
                searched = len(self._received)
                if searched > self._line_bytes_max:
                    message = f"the driver wrote {searched} bytes without a line feed; a line has at most "
                    raise TransportFailure("line_too_long", f"{message}{self._line_bytes_max}")
                if self._exited or not self._watches(self._stdout):
                    reason: FaultReason = "exited_mid_request" if self._answered else "exited_before_first_answer"
                    raise self._gone(reason, "in the middle of a request" if self._answered else "before it answered")
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise self._silent(len(unsent))
                unsent = self._take(self._selector.select(remaining), unsent)
        finally:
            if self._watches(self._stdin):
                self._selector.unregister(self._stdin)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        self._answered += 1
        return line

    def _take(self, ready: list[tuple[selectors.SelectorKey, int]], unsent: memoryview) -> memoryview:
        """Move what can be moved without waiting; returns what is still to be sent."""
        for key, _ in ready:
            if key.fd == self._stdin:
                try:
                    unsent = unsent[os.write(self._stdin, unsent[:_CHUNK_BYTES]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    unsent = unsent[:0]  # It does not listen any more; what it still says decides what this means.
                if not unsent:
                    self._selector.unregister(self._stdin)
            elif key.fd == self._exit:
                # Whatever it wrote is in the pipes now, even if somebody else still holds them open.
                self._exited = True
                self._selector.unregister(self._exit)
                self._read_what_is_there()
            elif self._watches(key.fd):
                self._read_once(key.fd)
        return unsent

    def _read_what_is_there(self) -> None:
        for pipe in (self._stdout, self._stderr):
            for _ in range(_PIPE_BYTES_MAX // _CHUNK_BYTES):
                if not self._watches(pipe) or not self._read_once(pipe):
                    break

    def _read_once(self, pipe: int) -> bool:
        """Read what is there now; False if that is nothing."""
        try:
            data = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(pipe)
        elif pipe == self._stderr:
            self._tail.add(data)
        elif len(self._received) <= self._line_bytes_max:
            self._received += data
        return bool(data)

    def _watches(self, descriptor: int) -> bool:
        return descriptor in self._selector.get_map()

    # -- ways to fail --------------------------------------------------------------------------------------------

    def _silent(self, unsent: int) -> TransportFailure:
        message = f"the driver gave no answer within {self.timeout_seconds:g} s"
        if self._received:
            message += f": {len(self._received)} bytes came, but no line feed; end every answer with one"
        elif unsent:
            message += f" and left {unsent} bytes of the request unread; read stdin line by line"
        else:
            message += "; if it has answered, it has not flushed its stdout"
        return TransportFailure("silent", message)

    def _gone(self, reason: FaultReason, when: str) -> TransportFailure:
        if not self._wait_for_exit():
            return TransportFailure(
                "closed_stdout", "the driver closed its stdout and still runs; it has to stay open until stdin ends"
            )
        self._read_what_is_there()
        if self._ended is not None and (self._ended.si_code, self._ended.si_status) == (os.CLD_EXITED, GAVE_UP_STATUS):
            reason = "gave_up"
        left = f"; the last it wrote was {len(self._received)} bytes without a line feed" if self._received else ""
        return TransportFailure(reason, f"the driver ended {when} with {_status(self._ended)}{left}")

    def _wait_for_exit(self) -> bool:
        """Give the driver a moment to be gone, reading what it has to say meanwhile."""
        deadline = time.monotonic() + self._exit_grace_seconds
        while not self._exited and (remaining := deadline - time.monotonic()) > 0:
            self._take(self._selector.select(remaining), memoryview(b""))
        return self._exited

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self, *, at_once: bool = False) -> None:
        """Let an idle driver end by itself, then kill what is left of its group. One that is busy is killed at once."""
        if not self._using.acquire(blocking=False):
            self.kill()
            self._using.acquire()
        try:
            if not self._closed:
                self._closed = True
                self._end(at_once)
        finally:
            self._using.release()

    def _end(self, at_once: bool) -> None:
        os.close(self._stdin)
        if at_once:
            self.kill()
        self.ended_by_itself = self._wait_for_exit() and not at_once
        self.kill()
        self._waiter.join()
        self._read_what_is_there()
        with self._signalling:
            self._process.wait()
            self._reaped = True
        self._selector.close()
        for descriptor in (self._stdout, self._stderr, self._exit):
            os.close(descriptor)


def _pipe(stream: IO[bytes] | None) -> int:
    """A descriptor of our own that never blocks; the stream, which buffers, is given up."""
    assert stream is not None
    descriptor = os.dup(stream.fileno())
    stream.close()
    os.set_blocking(descriptor, False)
    return descriptor


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    program = command[0]
    try:
        return subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            process_group=0,
        )
    except FileNotFoundError:
        if shutil.which(program, path=environment.get("PATH")) is not None:
            problem = f"'{program}' is there, but the interpreter that its first line names is not"
        else:
            problem = f"there is no command '{program}'; give a path, or a program on the PATH"
    except PermissionError:
        problem = f"'{program}' is not executable; chmod +x it, or name its interpreter first"
    except OSError as error:
        problem = f"'{program}' cannot be started: {error.strerror or error}; name its interpreter first"
    raise TransportFailure("not_started", problem)


def _status(ended: os.waitid_result | None) -> str:
    if ended is None or ended.si_code == os.CLD_EXITED:
        return f"exit status {ended.si_status if ended else 'unknown'}"
    try:
        return f"signal {ended.si_status} ({signal.Signals(ended.si_status).name})"
    except ValueError:
        return f"signal {ended.si_status}"
