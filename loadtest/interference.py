"""What learning costs serving: the same load on one API process, in turns with and without a worker.

`python -m loadtest.interference` starts everything itself and prints the ratio of throughputs per round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

from loadtest.bench.servers import child, stack

CONNECTIONS = 16


class Connection:
    """One keep-alive connection to this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer, None if it has no body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length:" not in answer:
            return None
        size = int(answer.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        return json.loads(await reader.readexactly(size)) if size else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def fill(port: int, pages: int) -> None:
    """Register pages."""
    connection = Connection(port)
    for begin in range(0, pages, 5000):
        urls = [f"https://h{i % 500}.example/{i}" for i in range(begin, min(begin + 5000, pages))]
        await connection.call("PUT", "/pages", {"pages": [{"url": url} for url in urls]})
    connection.close()


async def crawl(port: int, seconds: float) -> float:
    """Crawls per second: ask for one page, say what was found, and so on, on every connection."""
    end, crawls = time.monotonic() + seconds, 0

    async def one(number: int) -> None:
        nonlocal crawls
        connection = Connection(port)
        while time.monotonic() < end:
            found = await connection.call("GET", "/next")
            if found:
                outcome = {"lease": found["pages"][0]["lease"], "changed": (crawls + number) % 3 == 0}
                await connection.call("POST", "/outcomes", {"outcomes": [outcome]})
                crawls += 1
        connection.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return crawls / seconds


async def rounds(environment: dict[str, str], port: int, count: int, seconds: float) -> list[float]:
    """Throughput with a worker ÷ without, in each round; which goes first alternates."""
    ratios = []
    for number in range(count):
        rates = {}
        for with_worker in (False, True) if number % 2 else (True, False):
            if with_worker:
                with child("service", "work", **environment):
                    await asyncio.sleep(2.0)  # its start is not what is measured
                    rates[True] = await crawl(port, seconds)
            else:
                rates[False] = await crawl(port, seconds)
        ratios.append(rates[True] / rates[False])
        print(f"round {number + 1}: {rates[False]:.0f}/s without, {rates[True]:.0f}/s with: {ratios[-1]:.3f}")
    return ratios


async def measure(pages: int, count: int, seconds: float) -> None:
    with stack({"FRESHET_BANDWIDTH": "1000000", "FRESHET_MIN_DELAY_S": "0"}) as made:
        made.wait()
        await fill(made.service.port, pages)
        ratios = await rounds(made.environment, made.service.port, count, seconds)
    print(f"with ÷ without: median {statistics.median(ratios):.3f}, {min(ratios):.3f}–{max(ratios):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000, help="pages registered (default 20000)")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs (default 7)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each run (default 6)")
    options = parser.parse_args()
    asyncio.run(measure(options.pages, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
