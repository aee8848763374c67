"""What the quota service assigns to gateways that report by a script."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from envoy.service.rate_limit_quota.v3 import rlqs_pb2  # type: ignore[import-untyped]  # no types

from tests.golden.rls_messages import record_error
from tests.golden.transcript import Transcript
from tests.support.service_process import ServiceProcess, service_process

if TYPE_CHECKING:
    from collections.abc import Iterator

METHOD = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"

OF_DOMAINS = {
    "edge": "key_by: attribute:user, limit: 100/s",
    "slow": "key_by: attribute:user, limit: 10/minute",
    "window": "key_by: attribute:user, limit: 600/minute fixed_window",
    "stacked": "key_by: attribute:user, limits: [50/s, 600/minute]",
    "several": "key_by: attribute:user, limit: 100/s",
    "shadow": "key_by: global, limit: 5/s, mode: shadow",
    "costly": "key_by: global, limit: 100/s, cost: 10",
}
"""By domain, the rule for its users."""

RULES = """\
version: 1
rules:
  - {id: second, match: {attributes: {domain: several, user: true}}, key_by: global, limit: 40/s}
  - {id: named, match: {endpoint: /never}, key_by: ip, limit: 100/s}
""" + "".join(
    f"  - {{id: {name}, match: {{attributes: {{domain: {name}, user: true}}}}, {rule}}}\n"
    for name, rule in OF_DOMAINS.items()
)

UNLIMITED = {"nobody": "x"}
MARKER = "marker"
"""The key of buckets that no rule is for; each is answered at once."""


@dataclass(frozen=True)
class Report:
    """A gateway reports *buckets*. If it *is_quiet*, nothing is told at once."""

    gateway: str
    domain: str
    buckets: tuple[dict[str, str], ...]
    allowed: int = 1
    denied: int = 0
    elapsed: int = 0
    is_quiet: bool = False


@dataclass(frozen=True)
class Heard:
    """A gateway is told something."""

    gateway: str


@dataclass(frozen=True)
class Advance:
    """Time passes, until the service has taken it in: from 5 to 9 seconds."""

    seconds: float


@dataclass(frozen=True)
class Closed:
    """A gateway sends no more, and its stream ends."""

    gateway: str


Step = Report | Heard | Advance | Closed


def report(
    gateway: str,
    domain: str,
    *buckets: dict[str, str],
    allowed: int = 1,
    denied: int = 0,
    elapsed: int = 0,
) -> Report:
    return Report(gateway, domain, buckets, allowed, denied, elapsed)


def quietly(gateway: str, bucket: dict[str, str], **more: int) -> Report:
    return replace(report(gateway, "", bucket, **more), is_quiet=True)


@dataclass
class Stream:
    """A gateway's stream. What it is told waits in *inbox*; so does the error it ends with."""

    channel: grpc.Channel
    outbox: queue.Queue[bytes | None] = field(default_factory=queue.Queue)
    inbox: queue.Queue[bytes | grpc.RpcError | None] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        calling: Any = self.channel.stream_stream(METHOD)
        sent = iter(self.outbox.get, None)
        messages = calling(sent, timeout=100, wait_for_ready=True)
        threading.Thread(target=self._read, args=(messages,), daemon=True).start()

    def _read(self, messages: Iterator[bytes]) -> None:
        try:
            for message in messages:
                self.inbox.put(message)
        except grpc.RpcError as error:
            self.inbox.put(error)
        else:
            self.inbox.put(None)

    def next(self) -> bytes | grpc.RpcError | None:
        """What comes next; None at the end."""
        return self.inbox.get(timeout=60)


class Script:
    """Plays a script on a service. A gateway of its own, without limits, sees time pass there."""

    def __init__(self, service: ServiceProcess, transcript: Transcript) -> None:
        self._service = service
        self._transcript = transcript
        self._streams: dict[str, Stream] = {}
        self._clock = Stream(service.channel)
        self._marks = 0
        self._clock.outbox.put(_encoded(report("", "clock", UNLIMITED)))
        assert isinstance(self._clock.next(), bytes)

    def play(self, steps: dict[str, Step]) -> None:
        for name, step in steps.items():
            self._step(name, step)
        for name in list(self._streams):
            told = self._mark(name)
            assert told is None, f"{name} was told more than the script has: {told!r}"

    def close(self) -> None:
        for stream in (self._clock, *self._streams.values()):
            stream.outbox.put(None)

    def _step(self, name: str, step: Step) -> None:
        match step:
            case Report():
                self._of(step.gateway).outbox.put(_encoded(step))
                if step.is_quiet:
                    told = self._mark(step.gateway)
                    assert told is None, f"{name}: {told!r}"
            case Heard():
                self._record(name, self._next(step.gateway))
            case Advance():
                self._service.advance(step.seconds)
                assert isinstance(self._clock.next(), bytes)
                self._clock.outbox.put(_encoded(report("", "clock", UNLIMITED)))
            case Closed():
                stream = self._streams.pop(step.gateway)
                stream.outbox.put(None)
                assert stream.next() is None

    def _mark(self, gateway: str) -> bytes | None:
        """Wait until the service has taken in all that *gateway* has sent; what was told before,
        if anything was."""
        self._marks += 1
        bucket = {MARKER: str(self._marks)}
        self._of(gateway).outbox.put(_encoded(report(gateway, "", bucket)))
        told = None
        while True:
            message = self._of(gateway).next()
            assert isinstance(message, bytes), message
            told = told or _without_markers(message)
            if bucket in _buckets(message):
                return told

    def _next(self, gateway: str) -> bytes | grpc.RpcError | None:
        """What *gateway* is told next, but of markers."""
        while True:
            message = self._of(gateway).next()
            if not isinstance(message, bytes):
                return message
            if told := _without_markers(message):
                return told

    def _of(self, gateway: str) -> Stream:
        if gateway not in self._streams:
            self._streams[gateway] = Stream(self._service.channel)
        return self._streams[gateway]

    def _record(self, name: str, message: bytes | grpc.RpcError | None) -> None:
        if isinstance(message, bytes):
            self._transcript.add(name, _reading(message))
        elif message is None:
            self._transcript.add(name, "end of the stream")
        else:
            record_error(name, message, self._transcript)


def _encoded(step: Report) -> bytes:
    message = rlqs_pb2.RateLimitQuotaUsageReports(domain=step.domain)
    for bucket in step.buckets:
        usage = message.bucket_quota_usages.add(
            num_requests_allowed=step.allowed, num_requests_denied=step.denied
        )
        usage.bucket_id.bucket.update(bucket)
        if step.elapsed:
            usage.time_elapsed.seconds = step.elapsed
    written: bytes = message.SerializeToString(deterministic=True)
    return written


def _buckets(message: bytes) -> list[dict[str, str]]:
    found = rlqs_pb2.RateLimitQuotaResponse.FromString(message)
    return [dict(one.bucket_id.bucket) for one in found.bucket_action]


def _without_markers(message: bytes) -> bytes | None:
    """*message* without what it says of markers; None if it says nothing else."""
    found = rlqs_pb2.RateLimitQuotaResponse.FromString(message)
    others = [one for one in found.bucket_action if MARKER not in one.bucket_id.bucket]
    if len(others) == len(found.bucket_action):
        return message
    kept: bytes = rlqs_pb2.RateLimitQuotaResponse(bucket_action=others).SerializeToString()
    return kept or None


def _reading(message: bytes) -> dict[str, object]:
    found = rlqs_pb2.RateLimitQuotaResponse.FromString(message)
    written: bytes = found.SerializeToString(deterministic=True)
    assert len(written) == len(message)  # the order of a bucket's entries means nothing
    return {"bytes": written.hex(), "reads": [_action(one) for one in found.bucket_action]}


def _action(action: Any) -> str:
    entries = sorted(action.bucket_id.bucket.items())
    bucket = ", ".join(f"{key}={value[:40]}" for key, value in entries)
    if action.HasField("abandon_action"):
        return f"{bucket}: abandon"
    assignment = action.quota_assignment_action
    strategy = assignment.rate_limit_strategy
    told = f"{bucket}: for {assignment.assignment_time_to_live.seconds} s"
    if strategy.WhichOneof("strategy") == "blanket_rule":
        return f"{told} {strategy.BlanketRule.Name(strategy.blanket_rule)}"
    tokens = strategy.token_bucket
    rate = f"{tokens.tokens_per_fill.value} each {tokens.fill_interval.seconds} s"
    return f"{told} {rate}, at most {tokens.max_tokens}"


ADA = {"user": "ada"}
BOB = {"user": "bob"}
LONG = {"user": "x" * 4_097}

AFTER_THE_START: dict[str, Step] = {
    "report": report("a", "edge", {"user": "early"}),
    "half of the limit": Heard("a"),
    "6 seconds": Advance(6),
    "renewed": Heard("a"),
    "6 more seconds": Advance(6),
    "all of the limit": Heard("a"),
}

ONE_GATEWAY: dict[str, Step] = {
    "report": report("a", "edge", ADA),
    "assignment": Heard("a"),
    "6 seconds": Advance(6),
    "renewed": Heard("a"),
    "report of use": quietly("a", ADA, allowed=300, elapsed=6),
    "6 more seconds": Advance(6),
    "renewed after use": Heard("a"),
    "report beyond the limit": quietly("a", ADA, allowed=600, denied=600, elapsed=6),
    "again 6 seconds": Advance(6),
    "renewed after too much": Heard("a"),
    "other bucket": report("a", "", {"user": "carl"}),
    "assignment of the other": Heard("a"),
    "end": Closed("a"),
}

SEVERAL_GATEWAYS: dict[str, Step] = {
    "a reports": report("a", "edge", BOB),
    "a is given all": Heard("a"),
    "b reports": report("b", "edge", BOB),
    "b is given a little": Heard("b"),
    "a is given less": Heard("a"),
    "6 seconds": Advance(6),
    "a, after 6 seconds": Heard("a"),
    "b, after 6 seconds": Heard("b"),
    "b ends": Closed("b"),
    "6 more seconds": Advance(6),
    "a, after b has left": Heard("a"),
    "a reports again": quietly("a", BOB, allowed=100, elapsed=6),
    "6 seconds again": Advance(6),
    "a, alone": Heard("a"),
}

KINDS_OF_RULES: dict[str, Step] = {
    "a limit of a minute": report("a", "slow", ADA),
    "a limit of a minute, told": Heard("a"),
    "a fixed window": report("b", "window", ADA),
    "a fixed window, told": Heard("b"),
    "stacked limits": report("c", "stacked", ADA),
    "stacked limits, told": Heard("c"),
    "two rules": report("d", "several", ADA),
    "two rules, told": Heard("d"),
    "shadow": report("e", "shadow", ADA),
    "shadow, told": Heard("e"),
    "costly": report("g", "costly", ADA),
    "costly, told": Heard("g"),
    "no rule": report("h", "nobody", ADA),
    "no rule, told": Heard("h"),
    "two entries": report("i", "edge", {"user": "dora", "plan": "free"}),
    "two entries, told": Heard("i"),
    "by the id of a rule": report(
        "j", "headgate", {"headgate.rule": "named", "remote_address": "192.0.2.1"}
    ),
    "by the id of a rule, told": Heard("j"),
    "by an id of no rule": report("k", "headgate", {"headgate.rule": "nobody"}),
    "by an id of no rule, told": Heard("k"),
    "value that is too long": report("l", "edge", LONG),
    "value that is too long, told": Heard("l"),
    "unicode": report("m", "edge", {"user": "ädä"}),
    "unicode, told": Heard("m"),
}

IDLE: dict[str, Step] = {
    "report": report("a", "edge", {"user": "idle"}),
    "assignment": Heard("a"),
    **{
        f"{what} {number}": step
        for number in range(1, 3)
        for what, step in (
            ("8 seconds", Advance(8)),
            ("renewed", Heard("a")),
            ("nothing to report", quietly("a", {"user": "idle"}, allowed=0, elapsed=8)),
        )
    },
    "the last 8 seconds": Advance(8),
    "abandoned": Heard("a"),
}

SILENT: dict[str, Step] = {
    "report": report("a", "edge", {"user": "silent"}),
    "assignment": Heard("a"),
    "8 seconds": Advance(8),
    "renewed": Heard("a"),
    "8 more seconds": Advance(8),
    "renewed again": Heard("a"),
    "8 seconds in vain": Advance(8),
    "report at last": report("a", "", {"user": "silent"}, allowed=5, elapsed=24),
    "assignment anew": Heard("a"),
}

SCRIPTS = {
    "after_the_start": AFTER_THE_START,
    "one_gateway": ONE_GATEWAY,
    "several_gateways": SEVERAL_GATEWAYS,
    "kinds_of_rules": KINDS_OF_RULES,
    "idle": IDLE,
    "silent": SILENT,
}
"""In the order of their hours."""

INVALID = {
    "no message": b"\xff\xff",
    "no domain": _encoded(report("", "", ADA)),
    "long domain": _encoded(report("", "x" * 4_097, ADA)),
    "empty bucket": _encoded(report("", "edge", {})),
    "empty key": _encoded(report("", "edge", {"": "x"})),
    "long key": _encoded(report("", "edge", {"k" * 257: "x"})),
    "33 entries": _encoded(report("", "edge", {f"k{n}": "x" for n in range(33)})),
    "negative time": _encoded(report("", "edge", ADA, elapsed=-1)),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("service")
    flags = ("--rules", "rules.yaml", "--rlqs-idle", "24")
    with service_process(directory, *flags, files={"rules.yaml": RULES}) as running:
        _wait_for_rules(running)
        yield running


def _wait_for_rules(service: ServiceProcess) -> None:
    """Wait until the quota service has the rules; before, it lets everything pass."""
    stream = Stream(service.channel)
    stream.outbox.put(_encoded(report("", "edge", {"user": "first"})))
    told = stream.next()
    while isinstance(told, bytes) and "ALLOW_ALL" in str(_reading(told)):
        told = stream.next()
    stream.outbox.put(None)
    assert isinstance(told, bytes)


@pytest.mark.parametrize("name", SCRIPTS)
def test_assignments(service: ServiceProcess, name: str) -> None:
    service.set_time(list(SCRIPTS).index(name) * 3600)
    transcript = Transcript(f"rlqs/{name}")
    script = Script(service, transcript)
    script.play(SCRIPTS[name])
    script.close()
    transcript.check()


def test_invalid_reports(service: ServiceProcess) -> None:
    service.set_time(len(SCRIPTS) * 3600)
    transcript = Transcript("rlqs/invalid")
    for name, message in INVALID.items():
        stream = Stream(service.channel)
        stream.outbox.put(message)
        _record_end(name, stream, transcript)
    stream = Stream(service.channel)
    stream.outbox.put(_encoded(report("", "edge", ADA)))
    assert isinstance(stream.next(), bytes)
    stream.outbox.put(_encoded(report("", "other", ADA)))
    _record_end("other domain", stream, transcript)
    transcript.check()


def _record_end(name: str, stream: Stream, transcript: Transcript) -> None:
    error = stream.next()
    stream.outbox.put(None)
    assert isinstance(error, grpc.RpcError), error
    record_error(name, error, transcript)
