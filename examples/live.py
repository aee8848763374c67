"""Limits at work in your terminal: one stream of requests, seen by six limits.

In the long run every limit below allows 5 requests per 2 seconds, each with another algorithm. The
caller sends bursts, then a steady rate, then far too much. The algorithms differ in which of these
requests they allow.

    python examples/live.py              until Ctrl-C
    python examples/live.py --seconds 10
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from headgate import Decision, RateLimiter

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = (
    "5/2s token_bucket",
    "5/2s burst 1 gcra",
    "5/2s burst 8 leaky_bucket",
    "5/2s fixed_window",
    "5/2s sliding_window_log",
    "5/2s sliding_window_counter",
)
TICK = 0.1
WIDTH = max(10, min(48, shutil.get_terminal_size((130, 24)).columns - 72))
GREEN, RED, DIM, PLAIN = (
    ("\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "", "", "")
)
LEGEND = "the number let through" + (", red if any was denied" if RED else "")


def traffic() -> Iterator[tuple[str, int]]:
    """For each tick: what the caller is up to, and how many requests it sends."""
    while True:
        for phase, pattern, ticks in (
            ("a burst of 8 every 2.5 seconds", (8,) + (0,) * 24, 75),
            ("2 requests a second, steady", (1, 0, 0, 0, 0), 50),
            ("10 requests a second, hammering", (1,), 60),
            ("silence", (0,), 20),
        ):
            for count in itertools.islice(itertools.cycle(pattern), ticks):
                yield phase, count


class Row:
    """One limiter, and what became of the last requests."""

    def __init__(self, limit: str) -> None:
        self.name = limit
        self.limiter = RateLimiter(limit)
        self.marks: deque[str] = deque([" "] * WIDTH, maxlen=WIDTH)
        self.allowed = self.denied = 0
        self.last: Decision | None = None

    def tick(self, count: int) -> None:
        decisions = [self.limiter.hit("user:42") for _ in range(count)]
        allowed = sum(map(bool, decisions))
        self.allowed += allowed
        self.denied += count - allowed
        self.last = decisions[-1] if decisions else self.last
        self.marks.append(_mark(allowed, count))

    def show(self) -> str:
        last = self.last
        if last is None:
            said = ""
        elif last:
            said = f"{GREEN}allowed{PLAIN}, {last.remaining} left"
        else:
            said = f"{RED}denied{PLAIN}, retry in {last.retry_after:.1f} s"
        counts = f"{self.allowed:5d} {self.denied:6d}"
        return f"{self.name:29}{''.join(self.marks)}{counts}  {said}"


def _mark(allowed: int, count: int) -> str:
    if not count:
        return f"{DIM}·{PLAIN}"
    if allowed == count:
        return f"{GREEN}{_digit(count)}{PLAIN}"
    return f"{RED}{_digit(allowed)}{PLAIN}"


def _digit(count: int) -> str:
    return str(count) if count < 10 else "+"


def frame(rows: list[Row], phase: str, seconds: float) -> list[str]:
    return [
        "Headgate: one caller, six limits, each 5 requests per 2 seconds in the long run",
        f"{DIM}each column is {TICK:g} s: {LEGEND}{PLAIN}",
        "",
        f"now: {phase} ({seconds:.0f} s)",
        "",
        f"{'':29}{'':{WIDTH}}allow   deny  the last answer",
        *(row.show() for row in rows),
        "",
        f"{DIM}Ctrl-C ends it. The ten lines of Python are in README.md.{PLAIN}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, help="stop after so long (10 without a terminal)")
    seconds = parser.parse_args().seconds
    is_live = sys.stdout.isatty()
    if seconds is None and not is_live:
        seconds = 10.0
    rows = [Row(limit) for limit in LIMITS]
    start = time.monotonic()
    try:
        for number, (phase, count) in enumerate(traffic(), 1):
            for row in rows:
                row.tick(count)
            elapsed = time.monotonic() - start
            if is_live:
                home = "\x1b[H\x1b[2J" if number == 1 else "\x1b[H"
                print(home + "\x1b[K\n".join(frame(rows, phase, elapsed)) + "\x1b[J", flush=True)
            if seconds is not None and elapsed >= seconds:
                break
            time.sleep(max(0.0, start + number * TICK - time.monotonic()))
    except KeyboardInterrupt:
        pass
    if not is_live:
        print("\n".join(frame(rows, phase, elapsed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
