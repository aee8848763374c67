"""Requests to etcd's members over its JSON gateway: HTTP/1.1, POST /v3/...

A request goes to the member that answered last. If that one is down, hangs or has no leader, it
goes to the next one; each gets a share of the time left. If all fail and one of them has no leader,
they are asked again until there is one or the deadline has passed. If no member can be reached, the
error is raised at once, unless the caller insists. A request may arrive more than once, so it must
be idempotent.

The gateway is JSON: bytes are base64, 64-bit integers are strings, and zero values are left out.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.chance import chance
from headgate.control.etcd.errors import EtcdError, error_of, kind_of
from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.control.etcd.errors import Kind
    from headgate.control.etcd.url import EtcdURL, TLSFiles
    from headgate.server_urls import Address

    Message = dict[str, Any]

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
WATCH: Final = "/v3/watch"
AUTHENTICATE: Final = "/v3/auth/authenticate"

_PAUSE: Final = 0.1
"""Seconds between two rounds over the members while they elect a leader."""
_SHORTEST: Final = 0.001
_OK: Final = 200
_HEADERS: Final = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
"""`hasleader`: a member that has lost the others says so, instead of waiting for them."""


class _Connection(http.client.HTTPConnection):
    """A connection to one member, with TLS if there is a *context*."""

    def __init__(
        self, address: Address, context: ssl.SSLContext | None, server_name: str | None
    ) -> None:
        super().__init__(address.host, address.port)
        self._context = context
        self._server_name = server_name or address.host
        self.is_used = False

    def connect(self) -> None:
        super().connect()
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._server_name)

    def limit(self, seconds: float) -> None:
        """Set how long the next step may take."""
        self.timeout = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def abort(self) -> None:
        """End what another thread waits for on this connection."""
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)


class Endpoint:
    """A member at *address*. Keeps connections open for later requests. Safe among threads."""

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        self.place = str(address)
        self._address, self._context, self._server_name = address, context, server_name
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self.is_closed = False

    def ask(
        self, path: str, body: Message, *, within: float, headers: Mapping[str, str]
    ) -> Message:
        """Return the answer to *body*, *within* so many seconds. Raises `EtcdError`."""
        deadline = time.monotonic() + within
        while True:
            connection = self.take()
            was_used = connection.is_used
            try:
                with self.translated():
                    response = self.send(connection, path, body, headers, deadline=deadline)
                    content = response.read()
            except EtcdError as error:
                self.drop(connection)
                # A kept connection breaks when its member restarts: try once more with a new one.
                if was_used and error.kind == "unreachable" and time.monotonic() < deadline:
                    continue
                raise
            self._put_back(connection)
            return self._answer(response.status, content)

    def send(
        self,
        connection: _Connection,
        path: str,
        body: Message,
        headers: Mapping[str, str],
        *,
        deadline: float,
    ) -> http.client.HTTPResponse:
        """Send *body* and return the response, whose content is still to be read."""
        connection.limit(max(deadline - time.monotonic(), _SHORTEST))
        connection.request("POST", path, json.dumps(body), {**_HEADERS, **headers})
        connection.limit(max(deadline - time.monotonic(), _SHORTEST))
        connection.is_used = True
        return connection.getresponse()

    def take(self) -> _Connection:
        """Return a connection that nothing else uses, opened when something is sent."""
        with self._lock:
            if self.is_closed:
                raise EtcdError(self.place, "closed")
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = _Connection(self._address, self._context, self._server_name)
            self._busy.add(connection)
        return connection

    def drop(self, connection: _Connection) -> None:
        """Close *connection*."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def close(self) -> None:
        """Close all connections. Pending requests end with an error."""
        with self._lock:
            self.is_closed = True
            idle, self._idle = self._idle, []
            busy = [*self._busy]
        for connection in busy:
            connection.abort()
        for connection in idle:
            connection.close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate errors of the connection to `EtcdError`."""
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self.is_closed:
                raise EtcdError(self.place, "closed") from error
            kind: Kind = "timeout" if isinstance(error, TimeoutError) else "unreachable"
            raise EtcdError(self.place, kind, str(error)) from error

    def _put_back(self, connection: _Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self.is_closed and connection.sock is not None:
                self._idle.append(connection)
                return
        connection.close()

    def _answer(self, status: int, content: bytes) -> Message:
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            detail = f"HTTP status {status} without JSON; is --enable-grpc-gateway off?"
            raise EtcdError(self.place, "rejected", detail)
        if status != _OK:
            message = str(answer.get("message") or answer.get("error") or status)
            raise error_of(self.place, answer.get("code", 0), message)
        return answer


class WatchStream:
    """A watch by *endpoint* of *key* from etcd's revision *start* on, *within* seconds begun."""

    def __init__(
        self,
        endpoint: Endpoint,
        key: str,
        start: int,
        *,
        within: float,
        headers: Mapping[str, str],
    ) -> None:
        self.endpoint = endpoint
        self._within = within
        self._connection = endpoint.take()
        body = {"create_request": {"key": key, "start_revision": str(start)}}
        deadline = time.monotonic() + within
        try:
            with endpoint.translated():
                self._response = endpoint.send(
                    self._connection, WATCH, body, headers, deadline=deadline
                )
            self._next()  # etcd confirms
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float) -> bool:
        """Return True if something happened to the key, False after *seconds*.

        Looks at the socket alone. What was received before, and is buffered, is not noticed: the
        caller reads the key after each event, and that reading covers it.
        """
        with self.endpoint.translated(), selectors.DefaultSelector() as selector:
            selector.register(self._connection.sock, selectors.EVENT_READ)
            is_ready = bool(selector.select(seconds))
        self._connection.limit(self._within)
        return is_ready and self._next()

    def abort(self) -> None:
        """Have the pending `wait`, or the next one, raise. Never blocks."""
        self._connection.abort()

    def close(self) -> None:
        """End the watch."""
        self.endpoint.drop(self._connection)

    def _next(self) -> bool:
        """Read the next message; True if it has events. Raises `EtcdError` if the watch ended."""
        with self.endpoint.translated():
            line = self._response.readline()
        if not line:
            kind: Kind = "closed" if self.endpoint.is_closed else "unreachable"
            raise EtcdError(self.endpoint.place, kind, "the watch has ended")
        with self.endpoint.translated():
            message = json.loads(line)
        failure = message.get("error")
        if isinstance(failure, str):  # a request that failed as a whole
            raise error_of(self.endpoint.place, message.get("code", 0), failure)
        if failure is not None:
            code = failure.get("grpc_code", 0)
            raise error_of(self.endpoint.place, code, str(failure.get("message", "")))
        result = message.get("result", {})
        if int(result.get("compact_revision", 0)):
            raise EtcdError(self.endpoint.place, "compacted")
        if result.get("canceled"):
            reason = str(result.get("cancel_reason", ""))
            raise EtcdError(self.endpoint.place, kind_of(reason) or "rejected", reason)
        return bool(result.get("events"))


class Client:
    """The members that *url* names. Safe among threads."""

    def __init__(self, url: EtcdURL) -> None:
        context = tls_context(url.tls) if url.tls else None
        server_name = url.tls.server_name if url.tls else None
        self._endpoints = [Endpoint(one, context, server_name) for one in url.addresses]
        self._endpoints.sort(key=lambda _: chance())  # so that a fleet spreads over the members
        self._login = {"name": url.user, "password": url.password} if url.user else None
        self._token: str | None = None
        self._timeout = url.timeout
        self._first = 0

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self._endpoints)

    def ask(self, path: str, body: Message, *, insists: bool = False) -> Message:
        """Return the answer to *body*, which may have been sent more than once.

        With *insists* the whole deadline is used, whatever transient fault there is.
        Raises `EtcdError`, with `is_certain` if none of the attempts has changed anything.
        """
        deadline = time.monotonic() + self._timeout
        is_certain = True
        while True:
            waits = insists
            for left in range(self.members, 0, -1):
                endpoint = self._endpoints[self._first]
                within = max((deadline - time.monotonic()) / left, _SHORTEST)
                try:
                    return self.ask_one(endpoint, path, body, within)
                except EtcdError as error:
                    failure = error
                is_certain = is_certain and failure.is_certain
                failure.is_certain = is_certain
                if not failure.is_passing:
                    raise failure
                self.leave(endpoint)
                waits = waits or failure.kind in ("no_leader", "busy")
            if not waits or time.monotonic() + _PAUSE > deadline:
                raise failure
            time.sleep(_PAUSE)

    def ask_one(self, endpoint: Endpoint, path: str, body: Message, within: float) -> Message:
        """Return the answer of one member. Raises `EtcdError`."""
        deadline = time.monotonic() + within
        headers = self._headers(endpoint, within)
        try:
            return endpoint.ask(path, body, within=within, headers=headers)
        except EtcdError as error:
            if error.kind != "token" or self._login is None:
                raise
        self._token = None  # expired, or of a member that has forgotten it
        within = max(deadline - time.monotonic(), _SHORTEST)
        return endpoint.ask(path, body, within=within, headers=self._headers(endpoint, within))

    def _headers(self, endpoint: Endpoint, within: float) -> dict[str, str]:
        if self._login is None:
            return {}
        token = self._token
        if token is None:
            try:
                answer = endpoint.ask(AUTHENTICATE, self._login, within=within, headers={})
                token = str(answer["token"])
            except EtcdError as error:
                if "authentication is not enabled" not in str(error):
                    error.is_certain = True  # the request itself has not been sent
                    raise
                token = ""
            self._token = token
        return {"Authorization": token} if token else {}

    def leave(self, endpoint: Endpoint) -> None:
        """Ask another member next, if *endpoint* is the one that would be."""
        if self._endpoints[self._first] is endpoint:
            self._first = (self._first + 1) % self.members

    def watch(self, key: str, start: int) -> WatchStream:
        """Watch *key* from etcd's revision *start* on, by the member that is next.

        Raises `EtcdError`, as the stream does when it is lost.
        """
        endpoint = self._endpoints[self._first]
        share = self._timeout / self.members
        try:
            headers = self._headers(endpoint, share)
            return WatchStream(endpoint, key, start, within=share, headers=headers)
        except EtcdError as error:
            self.lose(endpoint, error)
            raise

    def ping(self, endpoint: Endpoint, key: str) -> int:
        """Return etcd's revision that wrote *key* last, as *endpoint* knows it; 0 if none did."""
        body = {"key": key, "keys_only": True}
        answer = self.ask_one(endpoint, RANGE, body, self._timeout / self.members)
        return next((int(one["mod_revision"]) for one in answer.get("kvs", ())), 0)

    def lose(self, endpoint: Endpoint, error: EtcdError) -> None:
        """Record that a watch by *endpoint* ended with *error*."""
        if error.kind in ("token", "denied"):
            self._token = None  # etcd 3.4 calls an expired token a missing permission
        if error.kind != "compacted":
            self.leave(endpoint)

    def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            endpoint.close()


def tls_context(tls: TLSFiles) -> ssl.SSLContext:
    """Read the files that *tls* names. Raises `OptionError`."""
    for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
        if path is not None:
            _check_pem(name, path)
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ValueError) as error:
        raise OptionError(f"etcds://: the TLS files cannot be used: {error}") from error
    return context


def _check_pem(name: str, path: str) -> None:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"etcds://: {name}={path} cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise OptionError(f"etcds://: {name}={path} is not a PEM file")
