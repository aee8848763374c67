"""The flow of one call: wait, send, read the response, retry. The same for every client.

`Caller.calling` is a generator of effects. A blocking client performs it with `drive`, an async one
with `adrive`. The client itself only sends requests and reads responses.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

from headgate.clients.options import Settings
from headgate.clients.signals import read_signal
from headgate.errors import HeadgateError, KeyInvalidError, OptionError
from headgate.llm.call import ModelCall
from headgate.llm.request import with_usage_reported
from headgate.policy.identity import hashed
from headgate.runtime.effects import Call, Sleep
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headgate.clients.host_state import HostState
    from headgate.clients.policy_limiter import LimitedCall
    from headgate.clients.retry_policy import RetryPolicy
    from headgate.clients.signals import ResponseInfo
    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.engine.request import Request
    from headgate.runtime.effects import Effects

Q = TypeVar("Q")
R = TypeVar("R")

DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""The idempotent methods of RFC 9110."""

KEY_FIELD: Final = "idempotency-key"
"""The header field with which a request of any method may be retried."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The parts of a request that the flow needs. *is_replayable*: its body can be sent again."""

    origin: str
    path: str
    method: str
    idempotency_key: str | None
    is_replayable: bool

    @property
    def may_be_retried(self) -> bool:
        """True if a second request does no harm: a server may have acted on one that it denied."""
        has_key = bool(self.idempotency_key and self.idempotency_key.strip(' "'))
        return self.is_replayable and (self.method in IDEMPOTENT or has_key)


def origin(scheme: str, host: str, port: int | None) -> str:
    """Return scheme, host and port in one spelling."""
    scheme, host = scheme.lower(), host.lower().strip("[]")
    shown = f"[{host}]" if ":" in host else host
    number = DEFAULT_PORTS.get(scheme) if port is None else port
    return f"{scheme}://{shown}" if number is None else f"{scheme}://{shown}:{number}"


Cause = Literal["server", "pace", "policy", "store"]
"""`server`: the server asked for a longer wait. `pace`, `policy`: the pace or a rule of the policy
allows the call too late. `store`: the store of either cannot be reached, and `on_store_failure` is
`fail_closed`."""

_REASONS: Final[dict[Cause, str]] = {
    "server": "the server asks for a wait that is longer than max_wait",
    "pace": "the pace is used up for longer than max_wait",
    "policy": "a limit of the policy is used up for longer than max_wait",
    "store": "the store of the pace cannot be reached, and on_store_failure is 'fail_closed'",
}


class NotSentError(HeadgateError):
    """A call is not sent because it would wait for longer than `RetryPolicy.max_wait`.

    `origin` is the scheme, host and port of the call, `cause` the reason. `retry_after` is the
    number of seconds until the call may be sent, or None if unknown. `attempts` is how often the
    call was sent and denied before, usually 0. Each client raises a subclass of its own error.
    """

    def __init__(
        self, origin: str, retry_after: float | None, cause: Cause, attempts: int = 0
    ) -> None:
        # Not super(): the next class may be the base error of a client, with other arguments.
        Exception.__init__(self, origin, retry_after, cause, attempts)
        self.origin = origin
        self.retry_after = retry_after
        self.cause: Cause = cause
        self.attempts = attempts

    def __str__(self) -> str:
        event = "not sent again" if self.attempts else "not sent"
        when = "" if self.retry_after is None else f"; retry after {self.retry_after:.3g} s"
        return f"{event} to {self.origin}: {_REASONS[self.cause]}{when}"


class Attempts:
    """The waits and attempts of one request, without I/O. Not thread-safe."""

    def __init__(
        self, info: RequestInfo, host: HostState, policy: RetryPolicy, random: Callable[[], float]
    ) -> None:
        self.count = 0
        self._info = info
        self._host = host
        self._policy = policy
        self._random = random
        self._waited_ns = 0
        self._seen_ns = 0
        self._not_before_ns = 0

    @property
    def time_left(self) -> float:
        """Seconds that the call may still wait."""
        return max(self._policy.max_wait_ns - self._waited_ns, 0) / SECOND

    def pause_ns(self, now_ns: int) -> int | None:
        """Return how long to wait before sending; 0: send now, None: too long.

        Ask again after the wait: another response may have asked for more.
        """
        self._look_at_host(now_ns)
        pause_ns = max(self._not_before_ns - now_ns, 0)
        return None if self._is_too_long(pause_ns) else pause_ns

    def seconds_until_open(self, now_ns: int) -> float:
        """Return the seconds until the call may be sent."""
        return seconds_at_least(self._not_before_ns - now_ns)

    def add_wait(self, from_ns: int, to_ns: int) -> None:
        """Count the time between two moments as waiting."""
        self._waited_ns += max(to_ns - from_ns, 0)

    def begin(self, now_ns: int) -> None:
        """Count an attempt that is sent now."""
        if not self.count:
            self._host.add_request(now_ns)
        self.count += 1

    def record(self, response: ResponseInfo, now_ns: int, time_ns: int) -> bool:
        """Record a response; return True to send the request again.

        *time_ns* is the time since the epoch.
        """
        host, policy = self._host, self._policy
        signal = read_signal(response, time_ns, trusts_clock=host.trusts_clock)
        host.record(self._info.path, signal, now_ns, self._random())
        if not signal.is_denied or not self._info.may_be_retried:
            return False
        if self.count >= policy.max_attempts:
            return False
        if not signal.waits:  # others may be served: this call alone backs off
            self._not_before_ns = now_ns + policy.backoff.pause_ns(self.count, self._random())
        if self.pause_ns(now_ns) is None:
            return False
        return host.take_retry(now_ns)

    def _look_at_host(self, now_ns: int) -> None:
        """Choose a moment after the end of the host's wait, within the time that is left."""
        until_ns, length_ns, denials = self._host.closure(self._info.path)
        if until_ns <= max(now_ns, self._seen_ns):
            return
        spread_ns = self._policy.backoff.spread_ns(denials, length_ns, self._random())
        room_ns = self._policy.max_wait_ns - self._waited_ns - (until_ns - now_ns)
        self._seen_ns = until_ns
        moment_ns = until_ns + min(spread_ns, max(room_ns, 0))
        self._not_before_ns = max(self._not_before_ns, moment_ns)

    def _is_too_long(self, pause_ns: int) -> bool:
        return pause_ns > 0 and self._waited_ns + pause_ns > self._policy.max_wait_ns


# Reading a denial to its end before the retry, so that its connection can be used again.
#
# An unread body makes a connection useless. But a server that sends its denial a byte at a time
# must not hold a call for longer than it may wait. So the number of bytes and the time are
# bounded; a response beyond either is closed, with its connection.


MAX_BYTES: Final = 65_536
"""The most bytes of a denial that are read."""

MAX_SECONDS: Final = 1.0
"""The most seconds that this takes; less if the call has less time left."""


class DiscardBudget:
    """The bytes and the seconds, on the clock *now_ns*, for reading one body."""

    __slots__ = ("_now_ns", "_read", "_until_ns", "seconds")

    def __init__(self, time_left: float, now_ns: Clock) -> None:
        self.seconds = min(time_left, MAX_SECONDS)
        self._now_ns = now_ns
        self._until_ns = now_ns() + round(self.seconds * SECOND)
        self._read = 0

    def allows_more(self, read: int = 0) -> bool:
        """Add *read* bytes; return True if more may be read."""
        self._read += read
        return self._read <= MAX_BYTES and self._now_ns() < self._until_ns

    @contextmanager
    def watch(self, sock: object) -> Iterator[None]:
        """Shut *sock* down if the block takes too long, which ends a read that blocks.

        A socket timeout does not help: it starts again with each byte. The connection must go back
        to its pool after the block, not in it, or the socket of another call could be shut down.
        Anything but a socket is not watched.
        """
        if not isinstance(sock, socket.socket):
            yield
            return
        lock, ended = threading.Lock(), threading.Event()

        def shut_down() -> None:
            with lock, suppress(OSError):
                if not ended.is_set():
                    # Not its own method: that of a TLS socket is not safe in another thread.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

        timer = threading.Timer(self.seconds, shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            with lock:
                ended.set()
            timer.cancel()


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request as rules see it. *body* is None if it cannot be read before it is sent."""

    request: Request
    body: bytes | None
    size: int

    @property
    def model_call(self) -> ModelCall:
        """The call of a language model that it may be."""
        kind = self.request.header("content-type")
        return ModelCall.of(self.request.path, self.body, self.size, kind)


class LimitedRequest(NamedTuple):
    """A request for a policy, and the call of a language model that it is, if rules ask."""

    request: Request
    model_call: ModelCall | None = None


class CallDenial(NamedTuple):
    """A policy denies a call: seconds until it may be sent, or None if never or unknown."""

    retry_after: float | None
    lacks_store: bool


@dataclass(frozen=True, slots=True)
class Adapter(Generic[Q, R]):
    """The functions that a client under a policy needs.

    *outgoing* reads a request, *with_body* returns it with another body, *watch* has a response
    feed a `LimitedCall` and end it. The errors *unsent* say that nothing was sent.
    """

    outgoing: Callable[[Q], OutgoingRequest]
    with_body: Callable[[Q, bytes], Q]
    watch: Callable[[R, LimitedCall], Effects[None]]
    unsent: tuple[type[Exception], ...]


class Caller(Generic[Q, R]):
    """Calls with requests *Q* and responses *R* of some client.

    *read_request* and *read_response* return what the flow needs of either; *discard* reads and
    closes a response whose request is sent again, within a `DiscardBudget`; *error* is the error of
    a call that is not sent; *adapter* is for a policy. Thread-safe if the client is.
    """

    def __init__(
        self,
        read_request: Callable[[Q], RequestInfo],
        read_response: Callable[[R], ResponseInfo],
        discard: Callable[[R, DiscardBudget], Any],
        error: Callable[[str, float | None, Cause, int], NotSentError],
        options: Mapping[str, Any],
        *,
        is_async: bool = False,
        adapter: Adapter[Q, R] | None = None,
    ) -> None:
        self._read_request = read_request
        self._read_response = read_response
        self._discard = discard
        self._error = error
        self._settings = Settings(options, is_async=is_async)
        self._adapter = adapter
        if adapter is None and self._settings.policy is not None:
            raise OptionError("policy is an option of the clients for httpx and httpx2 alone")

    def calling(self, request: Q, send: Callable[[Q], Any]) -> Effects[R]:
        """Send *request* by *send* when it may be sent, and again if it should be.

        Raises the error of a call that is not sent, and all that *send* raises.
        """
        settings = self._settings
        info, now_ns = self._read_request(request), settings.now_ns
        key = info.origin if settings.key is None else _key(info.origin, settings.key(request))
        hosts = settings.hosts
        attempts = Attempts(info, hosts.get(key, now_ns()), hosts.retry, settings.random)
        asked, request = self._asked(request)
        while True:
            limited = yield from self._waiting(asked, info, key, attempts)
            attempts.begin(now_ns())
            response = yield from self._sending(partial(send, request), limited)
            time_ns = settings.time_ns()  # before now_ns: a delay in between must not cut the wait
            if not attempts.record(self._read_response(response), now_ns(), time_ns):
                return response
            began_ns = now_ns()
            budget = DiscardBudget(attempts.time_left, now_ns)
            yield Call(partial(self._discard, response, budget))
            attempts.add_wait(began_ns, now_ns())

    def _asked(self, request: Q) -> tuple[LimitedRequest | None, Q]:
        """The parts of *request* that the policy needs, and the request to send."""
        policy, adapter = self._settings.policy, self._adapter
        if policy is None or adapter is None:
            return None, request
        outgoing = adapter.outgoing(request)
        if not policy.reads_model(outgoing.request):
            return LimitedRequest(outgoing.request), request
        call = outgoing.model_call
        if self._settings.include_usage and not call.asked.reports_usage and outgoing.body:
            request = adapter.with_body(request, with_usage_reported(outgoing.body))
            call = adapter.outgoing(request).model_call
        return LimitedRequest(replace(outgoing.request, attributes=call.attributes), call), request

    def _sending(self, send: Callable[[], Any], limited: LimitedCall | None) -> Effects[R]:
        """Send a request that *limited* allows, if there is one; it ends with the response."""
        response: R
        if limited is None or not limited.has_end or self._adapter is None:
            response = yield Call(send)
            return response
        try:
            response = yield Call(send)
            answer = self._read_response(response)
            limited.begin_response(answer)
            yield from self._adapter.watch(response, limited)
        except GeneratorExit:
            raise
        except BaseException as error:
            unsent = isinstance(error, self._adapter.unsent)
            yield from limited.undoing() if unsent else limited.ending()
            raise
        return response

    def closing(self) -> Effects[None]:
        """Close the limiter of the pace, unless it was given."""
        if self._settings.policy is not None:
            yield from self._settings.policy.closing()
        limiter = self._settings.limiter
        if limiter is not None and self._settings.owns_limiter:
            yield Call(getattr(limiter, "aclose", None) or getattr(limiter, "close"))  # noqa: B009

    def _waiting(
        self, asked: LimitedRequest | None, info: RequestInfo, key: str, attempts: Attempts
    ) -> Effects[LimitedCall | None]:
        """Wait until the server and the pace or the policy allow the call; what it holds by the
        policy."""
        limiter, now_ns = self._settings.limiter, self._settings.now_ns
        while True:
            yield from self._waiting_for_host(info, attempts)
            if asked is not None:
                limited = yield from self._checking(asked, info, attempts)
                if limited is None or attempts.pause_ns(now_ns()) == 0:
                    return limited
                yield from limited.undoing()
                continue
            if limiter is None:
                return None
            began_ns = now_ns()
            decision: Decision = yield Call(
                partial(limiter.acquire, key, timeout=attempts.time_left)
            )
            attempts.add_wait(began_ns, now_ns())
            if not decision:
                cause: Cause = "store" if decision.source == "fail_closed" else "pace"
                retry_after = None if cause == "store" else decision.retry_after
                raise self._error(info.origin, retry_after, cause, attempts.count)
            if attempts.pause_ns(now_ns()) == 0:
                return None
            # Another response has closed the host meanwhile: the next call gets this unit.
            yield Call(partial(limiter.refund, key, 1))

    def _checking(
        self, asked: LimitedRequest, info: RequestInfo, attempts: Attempts
    ) -> Effects[LimitedCall | None]:
        """Wait until the policy allows the call; None if no rule is for it."""
        policy, now_ns = self._settings.policy, self._settings.now_ns
        if policy is None:
            return None
        began_ns = now_ns()
        found = yield from policy.checking(asked.request, asked.model_call, attempts.time_left)
        attempts.add_wait(began_ns, now_ns())
        if isinstance(found, CallDenial):
            cause: Cause = "store" if found.lacks_store else "policy"
            raise self._error(info.origin, found.retry_after, cause, attempts.count)
        return found

    def _waiting_for_host(self, info: RequestInfo, attempts: Attempts) -> Effects[None]:
        now_ns = self._settings.now_ns
        while pause_ns := attempts.pause_ns(began_ns := now_ns()):
            yield Sleep(seconds_at_least(pause_ns), self._settings.clock)
            attempts.add_wait(began_ns, now_ns())
        if pause_ns is None:
            seconds = attempts.seconds_until_open(began_ns)
            raise self._error(info.origin, seconds, "server", attempts.count)


def _key(origin: str, key: object) -> str:
    """Return a name for *key* at *origin*, so that no server can close another one."""
    if isinstance(key, str) and key:
        return hashed(f"{len(origin)}:{origin}{key}")
    found = "an empty text" if key == "" else f"a {type(key).__name__}"
    raise KeyInvalidError(f"the key function returned {found}; expected a text, such as a token")
