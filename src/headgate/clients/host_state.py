"""State of the hosts that a process calls: who has to wait until when, and the retry budget.

Once a server has named a time, all calls under the same limit wait for it, not only the one that
was denied: the others would be denied too. A limit is known by its policy name in the response. The
policies of a path are learned from its responses, so a call waits for the policies of its path, for
its path and for its host. Calls to other paths go on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.clients.retry_policy import RetryPolicy
from headgate.clients.signals import HOST, PATH
from headgate.errors import OptionError
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.clients.signals import Signal

WINDOW: Final = 10
"""Seconds over which requests and retries are compared."""

MAX_PATHS: Final = 512
"""The paths of a host whose policies are remembered."""

MAX_CLOSURES: Final = 512
"""The closures of a host that are remembered."""

MAX_PATH_LENGTH: Final = 256
"""Characters; longer paths that begin alike count as one."""


@dataclass(slots=True)
class _Cell:
    second: int
    requests: int = 0
    retries: int = 0


class RetryBudget:
    """A bound on retries: over ten seconds *share* of the requests, and *per_second* more.

    When everything fails, retries multiply the load on a server that cannot carry the plain load.
    With a budget they add at most a share of it. Not thread-safe: its host has a lock. A clock that
    steps back frees nothing.
    """

    __slots__ = ("_cells", "_floor", "_share")

    def __init__(self, share: float, per_second: float) -> None:
        self._share = share
        self._floor = per_second * WINDOW
        self._cells: deque[_Cell] = deque()

    def add_request(self, now_ns: int) -> None:
        """Count a request that is about to be sent for the first time."""
        self._cell(now_ns).requests += 1

    def take_retry(self, now_ns: int) -> bool:
        """Take a retry; return False if none is left."""
        current = self._cell(now_ns)
        requests = sum(cell.requests for cell in self._cells)
        retries = sum(cell.retries for cell in self._cells)
        if retries + 1 > self._floor + self._share * requests:
            return False
        current.retries += 1
        return True

    def _cell(self, now_ns: int) -> _Cell:
        """Return the cell of this second; drop those that are too old."""
        cells, second = self._cells, now_ns // SECOND
        if not cells or second > cells[-1].second:
            cells.append(_Cell(second))
        while cells[0].second <= cells[-1].second - WINDOW:
            cells.popleft()
        return cells[-1]


class Closure(NamedTuple):
    """The end of a wait, its length, and the number of denials in a row that led to it."""

    until_ns: int = 0
    length_ns: int = 0
    denials: int = 0


OPEN: Final = Closure()


class HostState:
    """The waits and the retry budget of one host. Thread-safe.

    Times are nanoseconds of a monotonic clock.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._budget = RetryBudget(policy.retry_share, policy.retries_per_second)
        self._closures: dict[str, Closure] = {}
        self._policies: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._opened_by_clock_ns: int | None = None
        self._lock = threading.Lock()
        self.trusts_clock = True
        """False if a wait that was read from the client's clock has proved too short."""

    @property
    def closed_until_ns(self) -> int:
        """The end of its longest wait."""
        with self._lock:
            return max((closure.until_ns for closure in self._closures.values()), default=0)

    def closure(self, path: str) -> Closure:
        """Return the longest wait of calls to *path*; it may be over."""
        with self._lock:
            closures = self._closures
            if not closures:
                return OPEN
            return max(closures.get(scope, OPEN) for scope in self._scopes(path))

    def add_request(self, now_ns: int) -> None:
        """Count a request that is about to be sent for the first time."""
        with self._lock:
            self._budget.add_request(now_ns)

    def take_retry(self, now_ns: int) -> bool:
        """Take a retry from the budget; return False if none is left."""
        with self._lock:
            return self._budget.take_retry(now_ns)

    def record(self, path: str, signal: Signal, now_ns: int, random: float) -> None:
        """Record the *signal* of a response for *path*: delay the calls that it names, or, if the
        request was served, forget the denials of *path*.

        A denial without a time delays calls for a random part of the backoff.
        """
        with self._lock:
            self._check_clock(signal, now_ns)
            if signal.policies:
                self._learn(path[:MAX_PATH_LENGTH], signal.policies)
            if not signal.is_denied:
                for scope in self._scopes(path):
                    if self._closures.get(scope, OPEN).until_ns <= now_ns:
                        self._closures.pop(scope, None)
                if not self._policy.look_ahead:
                    return
            for named, wait_ns in signal.waits.items():
                scope = HOST if self._policy.scope == "host" else named
                if scope == PATH:
                    scope = _path_scope(path)
                self._close(scope, wait_ns, now_ns, random, is_denied=signal.is_denied)

    def _close(
        self, scope: str, wait_ns: int | None, now_ns: int, random: float, *, is_denied: bool
    ) -> None:
        until_ns, length_ns, denials = self._closures.get(scope, OPEN)
        if is_denied and now_ns >= until_ns:
            denials += 1  # calls that are denied together count once: the others find it closed
        if not wait_ns:
            wait_ns = self._policy.backoff.pause_ns(denials, random) if is_denied else 0
        wait_ns = min(wait_ns, self._policy.max_server_wait_ns)
        if now_ns + wait_ns > until_ns:
            until_ns, length_ns = now_ns + wait_ns, wait_ns
        if scope not in self._closures and len(self._closures) >= MAX_CLOSURES:
            del self._closures[min(self._closures, key=lambda one: self._closures[one])]
        self._closures[scope] = Closure(until_ns, length_ns, denials)

    def _scopes(self, path: str) -> tuple[str, ...]:
        return HOST, _path_scope(path), *self._policies.get(path[:MAX_PATH_LENGTH], ())

    def _learn(self, path: str, policies: frozenset[str]) -> None:
        self._policies[path] = policies
        self._policies.move_to_end(path)
        if len(self._policies) > MAX_PATHS:
            self._policies.popitem(last=False)

    def _check_clock(self, signal: Signal, now_ns: int) -> None:
        """Trust the client's clock no longer if a wait by it has just ended in a denial."""
        opened_ns = self._opened_by_clock_ns
        if opened_ns is not None and now_ns >= opened_ns:
            self._opened_by_clock_ns = None
            if signal.is_denied and now_ns - opened_ns < SECOND:
                self.trusts_clock = False
        if signal.is_by_clock:
            self._opened_by_clock_ns = now_ns + max(filter(None, signal.waits.values()), default=0)


def _path_scope(path: str) -> str:
    return f"path {path[:MAX_PATH_LENGTH]}"


class HostStates:
    """The states of all hosts that one or more clients call. Clients that share one wait together.

    Thread-safe. At most `RetryPolicy.max_hosts` are remembered; those that make calls wait are
    forgotten last.
    """

    def __init__(self, retry: RetryPolicy | None = None) -> None:
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise OptionError(f"retry is {retry!r}; expected a RetryPolicy")
        self.retry = retry or RetryPolicy()
        self._by_key: OrderedDict[str, HostState] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: str, now_ns: int) -> HostState:
        """Return the state of the host *key*, made if there is none."""
        with self._lock:
            known = self._by_key.get(key)
            if known is not None:
                self._by_key.move_to_end(key)
                return known
            if len(self._by_key) >= self.retry.max_hosts:
                del self._by_key[self._dispensable(now_ns)]
            state = self._by_key[key] = HostState(self.retry)
            return state

    def _dispensable(self, now_ns: int) -> str:
        """Return the open host that was called longest ago, or else the one that opens first."""
        for key, state in self._by_key.items():
            if state.closed_until_ns <= now_ns:
                return key
        return min(self._by_key, key=lambda key: self._by_key[key].closed_until_ns)
