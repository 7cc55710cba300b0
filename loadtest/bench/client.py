"""The load client: one process that keeps connections busy at next to no cost of its own.

`Load` is the handle of whoever measures; `main` runs in the process behind it, which takes jobs and gives
tallies as pickles on its standard streams.
"""

from __future__ import annotations

import gc
import pickle
import resource
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import BinaryIO, cast

from loadtest.bench.figures import percentile
from loadtest.bench.sockets import Connection, Poller
from service.child import tied

ID_MARK = b"{request-id}"  # in a request: replaced by an id of its own each time it is sent
LEASE_MARK = b'"lease":'  # once in an answer for each page it leases
STOP_S = 5.0
LONGEST_S = 86400.0  # of a job that ends by itself
DRAIN_S = 30.0  # how long answers are waited for once the time is up


@dataclass(frozen=True, slots=True)
class Job:
    """A load: the requests in turn, again and again for `seconds`, or each once if `seconds` is 0."""

    port: int
    requests: list[bytes]
    connections: int = 1
    seconds: float = 0.0
    warm_up_s: float = 0.0  # sent, but not counted
    rate: float = 0.0  # requests per second; 0: the next as soon as a connection is free
    keep: bool = False  # the bodies of all answers, also those not counted


@dataclass(slots=True)
class Tally:
    """What came of a job."""

    seconds: float = 0.0  # in which answers were counted
    statuses: Counter[int] = field(default_factory=Counter)
    leases: int = 0  # in the counted answers
    latencies: list[float] = field(default_factory=list)  # seconds, counted answers only
    bodies: list[bytes] = field(default_factory=list)
    cpu_s: float = 0.0  # of the client, over the whole job
    wall_s: float = 0.0

    @property
    def rate(self) -> float:
        """Answers with something in them per second."""
        return (self.statuses[200] + self.statuses[202]) / self.seconds

    @property
    def client_share(self) -> float:
        """Of one core: near 1 the client, not the server, is what was measured."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0

    def latency(self, share: float) -> float:
        return percentile(self.latencies, share)


class _Run:
    """One job under way."""

    def __init__(self, job: Job, run_id: int) -> None:
        self.job = job
        self.tally = Tally()
        self._todo = _requests(job, run_id)
        self._poller = Poller()
        self._connections: dict[int, Connection] = {}
        for _ in range(job.connections):
            connection = Connection(job.port)
            self._connections[connection.number] = connection
            self._poller.register(connection.number)
        self._idle = deque(self._connections.values())

    def run(self) -> Tally:
        began, used, job = time.perf_counter(), _cpu_s(), self.job
        self._count_from = self._last_at = began + job.warm_up_s
        # Of a load without pause, what is answered in the time counts; else all that was to be sent in it.
        closed = job.seconds > 0 and job.rate == 0
        self._count_until = self._count_from + job.seconds if closed else began + LONGEST_S
        try:
            self._open_loop(began) if job.rate > 0 else self._closed_loop(began)
        finally:
            self._poller.close()
            for connection in self._connections.values():
                connection.close()
        tally = self.tally
        tally.seconds = job.seconds if closed else max(self._last_at - self._count_from, 1e-9)
        tally.wall_s, tally.cpu_s = time.perf_counter() - began, _cpu_s() - used
        return tally

    def _closed_loop(self, began: float) -> None:
        job, idle = self.job, self._idle
        end = began + job.warm_up_s + job.seconds if job.seconds else began + LONGEST_S
        while True:
            now = time.perf_counter()
            while idle and now < end:
                request = next(self._todo, None)
                if request is None:
                    end = now
                    break
                self._send(request, now)
            if len(idle) == job.connections:
                return
            self._take(max(end, now) + DRAIN_S)

    def _open_loop(self, began: float) -> None:
        """Latency counts from when a request should have been sent, so a stalled server hides nothing."""
        job, gap = self.job, 1 / self.job.rate
        end = began + job.warm_up_s + job.seconds
        due = began
        while due < end or len(self._idle) < job.connections:
            now = time.perf_counter()
            while self._idle and due <= now and due < end:
                self._send(next(self._todo), due)
                due += gap
            waits = due < end and self._idle
            self._take(due if waits else max(end, now) + DRAIN_S, can_pass=bool(waits))

    def _send(self, request: bytes, since: float) -> None:
        connection = self._idle.popleft()
        connection.sent_at = since
        connection.send(request)

    def _take(self, until: float, *, can_pass: bool = False) -> None:
        """Answers that have come; with `can_pass` it is no error if none does until then."""
        ready = self._poller.wait(until - time.perf_counter())
        if not ready and not can_pass:
            raise TimeoutError("an answer did not come")
        for number in ready:
            connection = self._connections[number]
            answer = connection.receive()
            if answer is None:
                continue
            self._note(connection, *answer)
            self._idle.append(connection)

    def _note(self, connection: Connection, status: int, body: bytes) -> None:
        now, tally = time.perf_counter(), self.tally
        if self.job.keep:
            tally.bodies.append(body)
        counted_at = connection.sent_at if self.job.rate else now
        if not self._count_from <= counted_at <= self._count_until:
            return
        tally.statuses[status] += 1
        tally.leases += body.count(LEASE_MARK)
        tally.latencies.append(now - connection.sent_at)
        self._last_at = now


def _requests(job: Job, run_id: int) -> Iterator[bytes]:
    given = cycle(job.requests) if job.seconds else iter(job.requests)
    if ID_MARK not in job.requests[0]:
        return given
    numbers = count()
    return (request.replace(ID_MARK, b"%08x%08x" % (run_id, next(numbers))) for request in given)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Load:
    """The client's process, alive within a `with` block."""

    def __enter__(self) -> Load:
        # Not with -m: what a module run as a script defines cannot be unpickled by others.
        command = tied(sys.executable, "-c", "from loadtest.bench.client import main; main()")
        # A session of its own keeps Ctrl-C away: whoever measures stops it.
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        return self

    def run(self, job: Job) -> Tally:
        """Do the job; the error of a job that failed."""
        stdin, stdout = cast(BinaryIO, self._child.stdin), cast(BinaryIO, self._child.stdout)
        pickle.dump(job, stdin)
        stdin.flush()
        answer = pickle.load(stdout)
        if isinstance(answer, Exception):
            raise answer
        return cast(Tally, answer)

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        try:
            self._child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()


def main() -> None:
    """Take jobs until the standard input ends."""
    gc.disable()  # nothing here is cyclic, and a collection would look like a slow server
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    for run_id in count(1):
        try:
            job = pickle.load(stdin)
        except EOFError:
            return
        try:
            answer: Tally | Exception = _Run(job, run_id).run()
        except Exception as error:
            answer = error
        pickle.dump(answer, stdout)
        stdout.flush()
