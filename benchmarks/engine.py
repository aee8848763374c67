"""`python -m benchmarks.engine`: what a whole decision costs, from header lines to header lines.

The stages are those of a request on its way: the request is made of what a server received, the
engine plans, the store of this process decides, and the answer becomes headers of every family,
as bytes. Each row has one stage more than the one before. Nothing is refused, and the callers take
turns, so that no counter is always the one of before.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

from benchmarks.inprocess.contestant import Quota
from benchmarks.inprocess.floor import BareDict
from benchmarks.inprocess.goals import Goal
from benchmarks.inprocess.measure import MILLISECOND, Timing, in_turns
from benchmarks.inprocess.report import goal_lines, table, write_json
from benchmarks.surroundings import when_and_where
from headgate.engine import Engine, Runner, answer_of
from headgate.responses import headers_for
from headgate.rules.reading import read_policy
from headgate.rules.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.rules.model import Policy

RESULTS = Path(__file__).parent / "results" / "engine.json"
CALLERS = 1_000

Lines = list[tuple[bytes, bytes]]

ONE = """
version: 1
rules:
  - {id: default, key_by: api_key, limit: 1000000/s}
"""
DESIGN = """
version: 1
identity:
  api_key: {header: x-api-key}
  user_id: {header: x-user-id}
  tenant: {header: x-tenant-id}
  tier: {header: x-tier, default: free}
  ip: {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: login-brute-force
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
    on_store_failure: fail_closed
  - id: free-tier-default
    match: {endpoint: /api/v1/*, tier: free}
    algorithm: token_bucket
    capacity: 1000000
    refill_rate_per_sec: 1670.5
    key_by: api_key
  - id: per-tier
    match: {endpoint: /api/**}
    key_by: [tenant, endpoint]
    limits: {free: 1000000/s, paid: "100/s burst 200", enterprise: 1000/s}
    cost: {default: 1, endpoints: {"POST /export/pdf": 10}}
"""
KEYS = (
    "api_key",
    "ip",
    "tenant",
    "user_id",
    "endpoint",
    "global",
    "host",
    "[api_key, endpoint]",
    "[ip, method]",
    "[tenant, method]",
)
TEN = "version: 1\nrules:\n" + "\n".join(
    f"  - {{id: rule-{n}, match: {{endpoint: /api/**}}, key_by: {key}, limit: 1000000/s}}"
    for n, key in enumerate(KEYS)
)
POLICIES = {
    "one rule by API key": ONE,
    "DESIGN's example, two of three match": DESIGN,
    "ten rules, all match": TEN,
}
GOALS_US = {
    "one rule by API key": 12.0,
    "DESIGN's example, two of three match": 20.0,
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    repeats: int
    sample_ns: int


FULL = Effort(repeats=40, sample_ns=5 * MILLISECOND)
QUICK = Effort(repeats=12, sample_ns=3 * MILLISECOND)


def received(number: int) -> tuple[str, Lines]:
    """The peer and the header lines of a request of one caller, as a server hands them over."""
    lines = {
        "host": "api.example.com",
        "user-agent": "Mozilla/5.0 (X11; Linux x86_64)",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate, br",
        "x-api-key": f"key-{number:06d}",
        "x-user-id": f"{number}",
        "x-tenant-id": f"tenant-{number % 100}",
        "x-request-id": f"0f8fad5b-d9cb-469f-a165-{number:012d}",
    }
    return f"203.0.{number // 250}.{number % 250}", [
        (name.encode(), value.encode()) for name, value in lines.items()
    ]


def request_of(peer: str, lines: Lines) -> Request:
    """The request as the rules see it."""
    headers = tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in lines])
    return Request("GET", "/api/v1/items", "api.example.com", headers, peer)


class Way:
    """The way of a request under *policy*, up to each of its stages."""

    def __init__(self, policy: Policy) -> None:
        self._engine = Engine(policy)
        self._runner = Runner("memory://")

    def request(self, peer: str, lines: Lines) -> object:
        return request_of(peer, lines)

    def plan(self, peer: str, lines: Lines) -> object:
        return self._engine.plan(request_of(peer, lines))

    def decide(self, peer: str, lines: Lines) -> object:
        return self._runner.decide(self._engine.plan(request_of(peer, lines)))

    def answer(self, peer: str, lines: Lines) -> object:
        return answer_of(self._runner.decide(self._engine.plan(request_of(peer, lines))))

    def headers(self, peer: str, lines: Lines) -> list[tuple[str, str]]:
        verdict = self._runner.decide(self._engine.plan(request_of(peer, lines)))
        return headers_for(answer_of(verdict), now_ns=time.time_ns())

    def rendered(self, peer: str, lines: Lines) -> Lines:
        return [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in self.headers(peer, lines)
        ]


STAGES = ("request", "plan", "decide", "answer", "headers", "rendered")


def measure(text: str, effort: Effort) -> dict[str, Timing]:
    """Nanoseconds a request under the policy *text*, by the last stage."""
    callers = [received(number) for number in range(CALLERS)]
    way = Way(read_policy(text))
    assert len(way.headers(*callers[0])) >= 5, "all headers are to be sent"
    stages = {name: _sample(getattr(way, name), callers, effort) for name in STAGES}
    return in_turns({"floor": _floor(effort), **stages}, effort.repeats)


def _sample(
    stage: Callable[[str, Lines], object], callers: Sequence[tuple[str, Lines]], effort: Effort
) -> Callable[[], float]:
    for peer, lines in callers:
        stage(peer, lines)
    turn = count()

    def run(rounds: int) -> int:
        start = perf_counter_ns()
        for _ in range(rounds):
            peer, lines = callers[next(turn) % CALLERS]
            stage(peer, lines)
        return perf_counter_ns() - start

    rounds = max(1, effort.sample_ns * 50 // min(run(50) for _ in range(5)))
    return lambda: run(rounds) / rounds


def _floor(effort: Effort) -> Callable[[], float]:
    """A dict and a clock: what the decision alone takes at least."""
    floor = BareDict(Quota(1_000_000, 1))
    keys = [f"user:{number}" for number in range(CALLERS)]
    rounds = max(1, effort.sample_ns // (CALLERS * 200))
    return lambda: sum(floor.run(keys) for _ in range(rounds)) / (rounds * CALLERS)


def main() -> None:
    options = _parser().parse_args()
    effort = QUICK if options.quick else FULL
    measured = {name: measure(text, effort) for name, text in POLICIES.items()}
    print(_table(measured), end="\n\n")
    goals = [
        Goal(f"us a decision; {name}", _added_us(measured[name]), most, at_least=False)
        for name, most in GOALS_US.items()
    ]
    print(goal_lines(goals))
    results = {
        **when_and_where(),
        "effort": effort,
        "ns_per_request": measured,
        "goals": [{**dataclasses.asdict(goal), "met": goal.met} for goal in goals],
    }
    write_json(options.json, results)


def _added_us(timings: dict[str, Timing]) -> float:
    """What the decision adds to a request that a server has made."""
    return round((timings["headers"].best - timings["request"].best) / 1_000, 2)


def _table(measured: dict[str, dict[str, Timing]]) -> str:
    floor = partial(min, default=0.0)(timings["floor"].best for timings in measured.values())
    headings = ["us a request, best (median); times the floor", *measured]
    rows = [
        [f"up to {stage}", *(_cell(timings[stage], floor) for timings in measured.values())]
        for stage in STAGES
    ]
    added = [f"{_added_us(timings):.1f}" for timings in measured.values()]
    return table(headings, [*rows, ["plan to headers", *added]])


def _cell(timing: Timing, floor: float) -> str:
    best, median = timing.best / 1_000, timing.median / 1_000
    return f"{best:.1f} ({median:.1f}); {timing.best / floor:.0f}x"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some seconds, rough figures")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file to write")
    return parser


if __name__ == "__main__":
    main()
