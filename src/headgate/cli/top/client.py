"""The figures of a service at `/admin/v1/live`: their types, a client, and a thread that polls.

The names of the fields are those of the JSON. The service may be older or newer than this command:
a missing value, or one of another type, becomes the field's default; unknown fields are ignored.
"""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from headgate.errors import HeadgateError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.client import HTTPResponse

_T = TypeVar("_T")
_LARGEST: Final = 1e18


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Decisions by outcome: a count, or a rate per second."""

    allowed: float = 0.0
    denied: float = 0.0
    shadow_allowed: float = 0.0
    shadow_denied: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule(Outcomes):
    """A rule with its totals, or the totals of a removed one (*mode* is empty)."""

    rule_id: str = ""
    mode: str = ""
    candidate_of: str = ""
    per_second: Outcomes = Outcomes()
    sources: dict[str, float] = field(default_factory=dict)
    sources_per_second: dict[str, float] = field(default_factory=dict)

    @property
    def allowed_rate(self) -> float:
        return self.per_second.allowed + self.per_second.shadow_allowed

    @property
    def denied_rate(self) -> float:
        return self.per_second.denied

    @property
    def shadow_rate(self) -> float:
        """The rate of requests that the rule would deny if it were enforced."""
        return self.per_second.shadow_denied

    @property
    def traffic(self) -> float:
        return self.allowed_rate + self.denied_rate + self.shadow_rate

    @property
    def denied_share(self) -> float | None:
        """The share that the rule denies, or in shadow would deny; None without traffic."""
        return (self.denied_rate + self.shadow_rate) / self.traffic if self.traffic else None

    def source_shares(self) -> dict[str, float]:
        """The recent share of each source of decisions."""
        total = sum(self.sources_per_second.values())
        counts = self.sources_per_second.items()
        return {name: count / total for name, count in counts if count > 0}


@dataclass(frozen=True, slots=True)
class Points:
    """Decisions per second, the oldest first."""

    allowed: tuple[float, ...] = ()
    denied: tuple[float, ...] = ()
    shadow_allowed: tuple[float, ...] = ()
    shadow_denied: tuple[float, ...] = ()

    def of_last(self, seconds: int) -> list[tuple[float, float, float]]:
        """All decisions, denials and shadow denials of each of the last *seconds*."""
        parts = (self.allowed, self.denied, self.shadow_allowed, self.shadow_denied)
        padded = ([*[0.0] * (seconds - len(one)), *one[-seconds:]] for one in parts)
        return [(sum(all_), all_[1], all_[3]) for all_ in zip(*padded, strict=True)]

    def __len__(self) -> int:
        return max(map(len, (self.allowed, self.denied, self.shadow_allowed, self.shadow_denied)))


@dataclass(frozen=True, slots=True)
class Series:
    """The points of each rule by its id."""

    rules: dict[str, Points] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Key:
    """A counter with much traffic."""

    rule_id: str = ""
    key: str = ""
    per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """The decisions of a shadow rule.

    *newly_denied* and *newly_allowed* compare it with the rule that it is to replace, if there is
    one. *denied_anyway* counts those of its denials that an enforced rule denied. *since* is in
    seconds since the epoch.
    """

    rule_id: str = ""
    candidate_of: str = ""
    since: float | None = None
    requests: float = 0.0
    would_deny: float = 0.0
    denied_anyway: float = 0.0
    keys: float = 0.0
    keys_exact: bool = True
    newly_denied: float | None = None
    newly_allowed: float | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of requests."""

    gate: str = ""
    waiting: float = 0.0
    in_flight: float = 0.0
    slots: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The state of the policy."""

    revision: float | None = None
    rules: float = 0.0
    trouble: str = ""
    stale: bool = False
    current: bool = True
    problems: float = 0.0

    def troubles(self) -> list[str]:
        """Messages about a policy that is not the newest."""
        found = []
        if self.trouble:
            found.append(self.trouble)
        elif self.stale:
            found.append("The active policy is stale.")
        elif not self.current:
            found.append("The active policy may not be the newest.")
        if self.problems:
            count = "1 problem" if self.problems == 1 else f"{self.problems:g} problems"
            found.append(f"A newer policy has {count} and is not active.")
        return found


@dataclass(frozen=True, slots=True)
class Store:
    """The state of the store."""

    url: str = ""
    state: str = ""
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the time of a decision, in seconds."""

    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """All figures. *at* and *began* are in seconds since the epoch."""

    at: float = 0.0
    began: float = 0.0
    version: str = ""
    workers: float = 1.0
    factor: float = 1.0
    policy: Policy = Policy()
    store: Store = Store()
    requests: Outcomes = Outcomes()
    latency: Latency = Latency()
    rules: tuple[Rule, ...] = ()
    series: Series = field(default_factory=Series)
    busiest_keys: tuple[Key, ...] = ()
    refused_keys: tuple[Key, ...] = ()
    queues: tuple[Queue, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return self.store.state in ("ok", "") and not self.troubles()

    def troubles(self) -> list[str]:
        """Messages about store and policy."""
        return [*self.store.trouble, *self.policy.troubles()]

    def points(self, rule: Rule) -> Points:
        """The points of *rule*; the service sends them for the busiest rules."""
        return self.series.rules.get(rule.rule_id, Points())


def read_live(data: Mapping[str, Any]) -> Live:
    """Read the JSON object *data*."""
    return _read_object(Live, data)


def _read_object(kind: Callable[..., _T], data: Mapping[str, Any]) -> _T:
    values = {
        name: value
        for name, hint in _hints(kind).items()
        if name in data and (value := _read(hint, data[name])) is not None
    }
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}


def _read(hint: Any, found: object) -> Any:
    """*found* as a value of the type *hint*; None if it is not one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_object(hint, found) if isinstance(found, dict) else None
    if origin is tuple:
        items = (_read(arguments[0], one) for one in found) if isinstance(found, list) else ()
        return tuple(one for one in items if one is not None)
    if origin is dict:
        pairs = found.items() if isinstance(found, dict) else ()
        read = ((name, _read(arguments[1], one)) for name, one in pairs)
        return {name: one for name, one in read if one is not None}
    if float in (hint, *arguments):
        return _number(found)
    return found if isinstance(found, hint) else None


def _number(found: object) -> float | None:
    """*found* if it is a finite number; no figure here is negative."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return max(0.0, float(found)) if abs(found) < _LARGEST and isfinite(found) else None


# The client.

PATH: Final = "/admin/v1/live"
TIMEOUT_S: Final = 5.0
_LONGEST_BODY: Final = 64 * 1024 * 1024
_LONGEST_MESSAGE: Final = 200
_EXPECTED: Final = "http://127.0.0.1:8090, https://host or unix:/run/headgate.sock"
_MEANING: Final = {
    401: "the service does not know this token; pass another with --token-file FILE",
    403: "the admin API is disabled, or the token has no read access; see HEADGATE_ADMIN_TOKEN",
    404: f"{PATH} does not exist; check that the URL is a headgate service of this version",
}


class LiveError(HeadgateError):
    """The service returned no figures. *is_final*: repeating the same request is of no use."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class _UnixConnection(HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class LiveClient:
    """Reads the figures of the service at *url* with *token*. For one thread.

    Raises `OptionError` for an invalid URL.
    """

    def __init__(self, url: str, token: str, *, timeout: float = TIMEOUT_S) -> None:
        self._connection, self._path = _connection(url, timeout)
        self._headers = {"authorization": f"Bearer {token}", "accept": "application/json"}

    def get(self) -> Mapping[str, Any]:
        """Request the figures. Raises `LiveError`."""
        is_reused = self._connection.sock is not None
        try:
            return self._request()
        except (HTTPException, OSError) as error:
            self.close()
            if not is_reused or isinstance(error, TimeoutError):
                raise LiveError(_reason(error)) from error
        try:  # the service may close an idle connection
            return self._request()
        except (HTTPException, OSError) as error:
            self.close()
            raise LiveError(_reason(error)) from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def _request(self) -> Mapping[str, Any]:
        self._connection.request("GET", self._path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read(_LONGEST_BODY)
        if response.status != 200:
            raise _error_of(response, body)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LiveError("the response is not JSON; is this a headgate service?") from error
        if not isinstance(found, dict):
            raise LiveError("the response is not a JSON object; is this a headgate service?")
        return found


def _connection(url: str, timeout: float) -> tuple[HTTPConnection, str]:
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path:
            raise OptionError(f"--url has no socket path; expected {_EXPECTED}")
        return _UnixConnection(path, timeout=timeout), PATH
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # the form that is resolved
    except ValueError:  # includes UnicodeError
        host = port = None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise OptionError(f"--url is not the URL of a service; expected {_EXPECTED}")
    path = f"{parts.path.rstrip('/')}{PATH}"
    if not path.isascii() or not path.isprintable() or " " in path:
        raise OptionError(f"--url has an invalid path; expected {_EXPECTED}")
    kind = HTTPConnection if parts.scheme == "http" else HTTPSConnection
    return kind(host, port, timeout=timeout), path


def _error_of(response: HTTPResponse, body: bytes) -> LiveError:
    message = _MEANING.get(response.status)
    if message is None:
        message = f"HTTP {response.status} {response.reason}{_detail(body)}"
    return LiveError(message[:_LONGEST_MESSAGE], is_final=response.status in _MEANING)


def _detail(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    detail = found.get("detail") if isinstance(found, dict) else None
    return f": {detail}" if isinstance(detail, str) else ""


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return f"the response is not HTTP ({type(error).__name__})"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The latest figures, None before the first, and the reason why there are no newer ones."""

    url: str
    live: Live | None = None
    trouble: str = ""


class Poller:
    """A thread that requests the figures every *interval* seconds; it calls *notify* after each."""

    def __init__(
        self, client: LiveClient, url: str, interval: float, notify: Callable[[], None]
    ) -> None:
        self._client = client
        self._interval = interval
        self._notify = notify
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-top", daemon=True)
        self.snapshot = Snapshot(url)
        """The latest snapshot, replaced as a whole."""
        self.final: LiveError | None = None
        """The error of the very first request, if a repetition is of no use."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop polling. Does not wait: a response may take seconds."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, at most *seconds*."""
        self._thread.join(seconds)

    def _run(self) -> None:
        failed_at: float | None = None
        while not self._stop.is_set():
            began = monotonic()
            try:
                live = read_live(self._client.get())
                self.snapshot = Snapshot(self.snapshot.url, live)
                failed_at = None
            except LiveError as error:
                if error.is_final and self.snapshot.live is None:
                    self.final = error
                failed_at = failed_at or began
                self._record(error, monotonic() - failed_at)
            self._notify()
            self._stop.wait(max(0.0, self._interval - (monotonic() - began)))
        self._client.close()

    def _record(self, error: LiveError, seconds: float) -> None:
        since = f" for {seconds:.0f} s" if seconds >= 1 else ""
        trouble = f"No figures from {self.snapshot.url}{since}: {error}. Retrying."
        self.snapshot = Snapshot(self.snapshot.url, self.snapshot.live, trouble)
