"""The rate limit service of Envoy: Headgate beside other services, if their binaries are here."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from time import thread_time_ns
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.grpc_load import Target, full_load, paced_load
from benchmarks.measure import in_turns
from benchmarks.servers import RLS_KEYS, DecisionService, Server
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.rls import RateLimitCalls
from headgate.service.rls.messages import PATH, RateLimitRequest
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CALLERS: Final = 10_000
RATE: Final = 2_000
OK: Final = b"\x08\x01"
"""`overall_code: OK`, with which a reply begins."""
LIMIT: Final = 1_000_000_000


POLICY: Final = f"""
version: 1
rules:
  - id: per-address
    match: {{attributes: {{generic_key: api}}}}
    key_by: attribute:remote_address
    limit: {LIMIT}/minute
"""


def request_of(address: str) -> bytes:
    """What Envoy asks, of a usual size."""
    request = RateLimitRequest(domain="bench", hits_addend=1)
    descriptor = request.descriptors.add()
    descriptor.entries.add(key="generic_key", value="api")
    descriptor.entries.add(key="remote_address", value=address)
    return bytes(request.SerializeToString())


def addresses() -> Iterator[str]:
    """Addresses that are all different."""
    for number in count():
        yield f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


BODIES: Final = tuple(map(request_of, islice(addresses(), CALLERS)))


class Peer(Server):
    """Another service; its counters are in *redis*, or in memory."""

    program: str
    path = PATH
    reply = OK
    bodies: Sequence[bytes] = BODIES

    def __init__(self, directory: Path, redis: RedisServer | None) -> None:
        super().__init__(directory)
        self.run("env", *self.call(redis), ready=None)
        wait_until(partial(_listens, self.port), f"{self.program} listens", within=20)

    def call(self, redis: RedisServer | None) -> list[str]:
        """Variables, program and arguments."""
        raise NotImplementedError


class Ratelimit(Peer):
    """envoyproxy/ratelimit; its program is built as `ratelimit`."""

    program = "ratelimit"

    def call(self, redis: RedisServer | None) -> list[str]:
        assert redis is not None, "it has no counters of its own"
        config = self.directory / "runtime" / "config"
        config.mkdir(parents=True)
        limit = f"rate_limit: {{unit: minute, requests_per_unit: {LIMIT}}}"
        called = (
            f"{{key: generic_key, value: api, descriptors: [{{key: remote_address, {limit}}}]}}"
        )
        behind_envoy = f"{{key: {RLS_KEYS[-1]}, {limit}}}"
        for key in reversed(RLS_KEYS[:-1]):
            behind_envoy = f"{{key: {key}, descriptors: [{behind_envoy}]}}"
        for domain, descriptor in (("bench", called), ("headgate", behind_envoy)):
            text = f"domain: {domain}\ndescriptors: [{descriptor}]\n"
            (config / f"{domain}.yaml").write_text(text)
        return [
            f"RUNTIME_ROOT={self.directory}/runtime",
            "RUNTIME_WATCH_ROOT=false",
            "REDIS_SOCKET_TYPE=tcp",
            f"REDIS_URL=127.0.0.1:{redis.port}",
            "USE_STATSD=false",
            "LOG_LEVEL=error",
            "HOST=127.0.0.1",
            "GRPC_HOST=127.0.0.1",
            "DEBUG_HOST=127.0.0.1",
            f"PORT={self.another_port()}",
            f"GRPC_PORT={self.port}",
            f"DEBUG_PORT={self.another_port()}",
            self.program,
        ]


class Limitador(Peer):
    """Limitador's server."""

    program = "limitador-server"

    def call(self, redis: RedisServer | None) -> list[str]:
        limits = self.directory / "limits.yaml"
        limits.write_text(
            f"""\
- namespace: bench
  max_value: {LIMIT}
  seconds: 60
  conditions: ["descriptors[0].generic_key == 'api'"]
  variables: ["descriptors[0].remote_address"]
- namespace: headgate
  max_value: {LIMIT}
  seconds: 60
  conditions: []
  variables: ["descriptors[0]['x-api-key']"]
"""
        )
        ports = ["--rls-ip", "127.0.0.1", "--rls-port", str(self.port)]
        ports += ["--http-ip", "127.0.0.1", "--http-port", str(self.another_port())]
        store = ["memory"] if redis is None else ["redis", redis.bare_url]
        return [self.program, *ports, str(limits), *store]


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes((*written, number))


def _gubernator_request(key: str) -> bytes:
    """GetRateLimitsReq: name, unique_key, hits, limit, duration in ms; a token bucket."""
    text = [(1, b"bench"), (2, key.encode())]
    numbers = [(3, 1), (4, LIMIT), (5, 60_000)]
    fields = [bytes((tag << 3 | 2, len(value))) + value for tag, value in text]
    fields += [bytes((tag << 3,)) + _varint(value) for tag, value in numbers]
    one = b"".join(fields)
    return b"\x0a" + _varint(len(one)) + one


class Gubernator(Peer):
    """Gubernator, one node; its replies begin with a response that has no status: under limit."""

    program = "gubernator"
    path = "/pb.gubernator.V1/GetRateLimits"
    reply = b"\x0a"
    bodies = tuple(map(_gubernator_request, islice(addresses(), CALLERS)))

    def call(self, redis: RedisServer | None) -> list[str]:
        assert redis is None, "it keeps its counters itself"
        return [
            f"GUBER_GRPC_ADDRESS=127.0.0.1:{self.port}",
            f"GUBER_HTTP_ADDRESS=127.0.0.1:{self.another_port()}",
            "GUBER_PEER_DISCOVERY_TYPE=none",
            f"GUBER_CACHE_SIZE={10 * CALLERS}",
            self.program,
        ]


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


OURS: Final = "headgate"
ON_REDIS: Final = {"ratelimit": Ratelimit, "limitador": Limitador}
IN_MEMORY: Final = {"gubernator": Gubernator, "limitador": Limitador}


def peers(
    root: Path, redis: RedisServer | None, stack: ExitStack, effort: Effort
) -> tuple[dict[str, Peer], str]:
    """Start the peers that are installed; a note on those that are not."""
    kinds: dict[str, type[Peer]] = {**(ON_REDIS if redis else IN_MEMORY)}
    found: dict[str, Peer] = {}
    missing = []
    for name, kind in kinds.items() if effort.with_peers else ():
        if shutil.which(kind.program) is None:
            missing.append(f"{kind.program} is not on the path")
        else:
            found[name] = kind(root / name, redis)
            stack.enter_context(found[name])
    return found, "; ".join(missing)


class _Services:
    """Headgate and the peers that are installed, all running; what each is asked."""

    def __init__(self, stack: ExitStack, redis: RedisServer | None, effort: Effort) -> None:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        flags = ("--store", redis.url) if redis else ()
        ours = DecisionService(root / OURS, POLICY, *flags)
        stack.enter_context(ours)
        self.servers: dict[str, Server] = {OURS: ours}
        self.targets = {OURS: Target(ours.grpc_port, PATH, BODIES, OK)}
        found, self.note = peers(root, redis, stack, effort)
        for name, peer in found.items():
            self.servers[name] = peer
            self.targets[name] = Target(peer.port, peer.path, peer.bodies, peer.reply)

    def per_cpu_second(self, calls: int, rounds: int, *, hot: bool = False) -> dict[str, float]:
        """Calls for each second of processor time of the service, the median of *rounds*."""
        found: dict[str, list[float]] = {name: [] for name in self.servers}
        for number in range(rounds + 1):
            for name, server in self.servers.items():
                target = self.targets[name]
                if hot:
                    target = Target(target.port, target.path, target.bodies[:1], target.reply)
                before = server.cpu_ns()
                done = uvloop.run(full_load(target, calls if number else CALLERS))
                if number:  # the first round is a warm-up
                    found[name].append(done / (server.cpu_ns() - before) * 1e9)
        return {name: median(rates) for name, rates in found.items()}

    def p99_ms(self, seconds: float, rounds: int) -> dict[str, float]:
        found: dict[str, list[float]] = {name: [] for name in self.servers}
        for _ in range(rounds):
            for name, target in self.targets.items():
                times = sorted(uvloop.run(paced_load(target, RATE, seconds)))
                found[name].append(times[len(times) * 99 // 100] * 1000)
        return {name: median(rates) for name, rates in found.items()}


def rls(effort: Effort) -> list[Row]:
    """Calls per CPU-second of the service, and how long they take."""
    calls, rounds = CALLERS, effort.rounds(5)
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        services = _Services(stack, redis, effort)
        many = services.per_cpu_second(calls, rounds)
        hot = services.per_cpu_second(calls, rounds, hot=True)
        p99 = services.p99_ms(effort.seconds(3), effort.rounds(4))
        note = services.note
    with ExitStack() as stack:
        services = _Services(stack, None, effort)
        in_memory = services.per_cpu_second(calls, rounds)
    rows = [
        Row(
            f"rls.{name}",
            f"RLS {path}, per CPU-second",
            rates.pop(OURS),
            "/s",
            tuple(Budget(bound, peer, at_least=True) for peer, bound in bounds.items()),
            rates,
            higher_is_better=True,
            note=missing,
        )
        for name, path, rates, bounds, missing in (
            ("redis", "on Redis, 10,000 callers", many, {"ratelimit": 2.5, "limitador": 1.4}, note),
            ("redis_hot", "on Redis, one hot caller", hot, {"ratelimit": 2.5}, note),
            (
                "memory",
                "in memory, 10,000 callers",
                in_memory,
                {"gubernator": 2, "limitador": 0.75},
                services.note,
            ),
        )
    ]
    ours_p99 = p99.pop(OURS)
    rows.append(
        Row(
            "rls.redis_p99",
            f"RLS on Redis, p99 at {RATE:,}/s",
            ours_p99,
            "ms",
            (Budget(1, "ratelimit"),),
            p99,
            note=note,
        )
    )
    return [*rows, _handler(effort)]


def _handler(effort: Effort) -> Row:
    """A call of somebody who has not called before, without a network."""
    engine = AsyncRuleEngine(read_policy(POLICY), salt=b"salt")
    core = Core(rules=engine, clock=time.time_ns, secret=b"a secret of the benchmark")
    handle, bodies = RateLimitCalls(core).should_rate_limit, map(request_of, addresses())

    def sample(calls: int = 1_000) -> float:
        some = list(islice(bodies, calls))
        began = thread_time_ns()
        for body in some:
            reply = handle(body)
        taken = thread_time_ns() - began
        assert isinstance(reply, bytes)
        assert reply.startswith(OK)
        return taken / calls

    timing = in_turns({"handler": sample}, effort.rounds(60))["handler"]
    path = "RLS handler, caller not seen before"
    return Row("rls.handler", path, timing.best / 1000, "us", (Budget(13),))
