"""What an app reads of a request, and the journal of the requests that reached its handlers."""

from __future__ import annotations

import threading
from collections import defaultdict
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LIMIT: Final = 2

POLICY: Final = f"""\
version: 1
identity:
  ip: {{trusted_proxies: [127.0.0.9/32, 10.0.0.0/8, "fd00::/8"]}}
rules:
  - {{id: login, match: {{endpoint: /login, method: POST}}, key_by: ip, limit: {LIMIT}/day}}
  - {{id: account, match: {{endpoint: /acct/*}}, key_by: endpoint, limit: {LIMIT}/day}}
  - {{id: user, match: {{endpoint: /by/user}}, key_by: user_id, limit: {LIMIT}/day}}
  - {{id: key, match: {{endpoint: /by/key}}, key_by: api_key, limit: {LIMIT}/day}}
  - {{id: pair, match: {{endpoint: /by/pair}}, key_by: [tenant, user_id], limit: {LIMIT}/day}}
  - {{id: token, match: {{endpoint: /by/token}}, key_by: "header:authorization",
     limit: {LIMIT}/day}}
  - {{id: session, match: {{endpoint: /by/session}}, key_by: "cookie:sid", limit: {LIMIT}/day}}
  - {{id: plan, match: {{endpoint: /by/plan, headers: {{x-plan: free}}}}, key_by: ip,
     limit: {LIMIT}/day}}
  - {{id: flag, match: {{endpoint: /by/flag, cookies: {{plan: free}}}}, key_by: ip,
     limit: {LIMIT}/day}}
  - {{id: host, match: {{endpoint: /by/host}}, key_by: host, limit: {LIMIT}/day}}
  - {{id: shop, match: {{endpoint: /by/shop, host: shop.example}}, key_by: ip,
     limit: {LIMIT}/day}}
  - {{id: method, match: {{endpoint: /by/method, method: GET}}, key_by: ip, limit: {LIMIT}/day}}
  - {{id: address, match: {{endpoint: /by/address}}, key_by: ip, limit: {LIMIT}/day}}
"""
"""The rules under attack. `/free` has no rule: it carries smuggled requests."""

KINDS: Final = (
    *("user", "key", "pair", "token", "session", "plan", "flag", "host", "shop", "method"),
    "address",
)
"""The handlers below `/by/`. `login` is at /login, `account` at /acct/NAME, `free` at /free."""

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
"""Of /by/method; the other handlers below /by/ take GET, HEAD and POST, /login POST alone."""

_ONLY: Final = {"plan": "free", "flag": "free", "shop": "shop.example", "method": "GET"}
"""The value that the rule of a handler is for; with others nothing limits it."""

_NOBODY: Final = "None"
"""An identity that is missing."""


class Reading(NamedTuple):
    """A request as an app reads it; what may fail is read on demand."""

    method: str
    host: Callable[[], str]
    header: Callable[[str], str | None]
    cookie: Callable[[str], str | None]
    token: Callable[[], str | None]


class Arrival(NamedTuple):
    """A request that a handler got. *identity* is whom it took it for, *mark* names the attempt."""

    identity: tuple[str, str, str]
    mark: str


class Journal:
    """All arrivals."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.clients: dict[str, str] = {}
        self._lock = threading.Lock()

    def reach(self, kind: str, reading: Reading, name: str = "", *, reader: str = "app") -> None:
        """Record a request to the handler *kind*; *name* is what the router found in the path."""
        mark = reading.header("x-entry") or "unmarked"
        value = self._value(kind, reading, name, mark)
        if kind == "free" or (kind == "token" and value == _NOBODY):  # which such an app denies
            return
        if _ONLY.get(kind, value) != value:
            return
        if kind in _ONLY or value == _NOBODY:  # counted by address
            value = f"{value} from {self._client(mark)}"
        with self._lock:
            self.arrivals.append(Arrival((kind, reader, value), mark))

    def take(self) -> list[Arrival]:
        """The arrivals since this was called last."""
        with self._lock:
            taken, self.arrivals = self.arrivals, []
        return taken

    def _client(self, mark: str) -> str:
        return self.clients.get(mark, "an unmarked client")

    def _value(self, kind: str, reading: Reading, name: str, mark: str) -> str:
        if kind == "account":
            return name
        if kind in ("address", "login"):
            return self._client(mark)
        if kind == "method":
            return "GET" if reading.method.upper() in ("GET", "HEAD") else reading.method.upper()
        if kind in ("host", "shop"):
            return host_name(reading.host())
        return repr(_CALLERS[kind](reading)) if kind not in _ONLY else str(_CALLERS[kind](reading))


_CALLERS: Final[dict[str, Callable[[Reading], object]]] = {
    "user": lambda reading: reading.header("x-user-id"),
    "key": lambda reading: reading.header("x-api-key"),
    "pair": lambda reading: (reading.header("x-tenant-id"), reading.header("x-user-id")),
    "token": lambda reading: reading.token(),
    "session": lambda reading: reading.cookie("sid"),
    "plan": lambda reading: reading.header("x-plan"),
    "flag": lambda reading: reading.cookie("plan"),
}


def excess(arrivals: Iterable[Arrival], bound: int) -> dict[tuple[str, str, str], list[str]]:
    """The identities under which more than *bound* requests arrived, each with the marks of the
    arrivals beyond it."""
    marks = defaultdict(list)
    for arrival in arrivals:
        marks[arrival.identity].append(arrival.mark)
    return {identity: found[bound:] for identity, found in marks.items() if len(found) > bound}


def host_name(host: str) -> str:
    """The name in *host*, as apps compare it: in lower case, without the port."""
    name = host.strip().lower()
    return name.partition("]")[0] if name.startswith("[") else name.partition(":")[0]


def bearer(value: str | None) -> str | None:
    """The token in an `Authorization` header, as apps commonly read it."""
    scheme, _, token = (value or "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def simple_cookie(line: str | None, name: str) -> str | None:
    """A cookie by the parser of the standard library."""
    try:
        morsel = SimpleCookie(line or "").get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value
