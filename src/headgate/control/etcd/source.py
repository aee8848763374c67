"""`EtcdSource`: the policy of a fleet, in etcd.

    <prefix>policy                          the newest revision
    <prefix>history/<number, 20 digits>     each revision that is kept, the newest too

A value is the JSON of `Revision.to_json` with one more member in front: a `nonce`, by which a
writer recognises its own write when it lost the answer. Values above 16 KiB are compressed by zlib.
The first byte tells which: JSON begins with a brace.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.control.etcd.client import RANGE, TXN, Client
from headgate.control.etcd.errors import EtcdError
from headgate.control.etcd.url import parse_etcd_url
from headgate.control.revision import (
    ConflictError,
    ReadOnlyError,
    Revision,
    SourceError,
    UnknownRevisionError,
    revision_from_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.control.etcd.client import WatchStream
    from headgate.control.etcd.url import EtcdURL
    from headgate.control.revision import Change

    Message = dict[str, Any]

_PLAIN: Final = 16_384
_LONGEST: Final = 64 * 2**20
_DIGITS: Final = 20
_PAGE: Final = 10
"""The revisions read at a time: each may be half of etcd's largest request."""
_OVERHEAD: Final = 512
"""Bytes that etcd adds to a request before it checks the size."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys below *prefix*, as the gateway has them: in base64."""

    prefix: str

    @property
    def head(self) -> str:
        """The key of the newest revision."""
        return _encoded(f"{self.prefix}policy")

    def at(self, number: int) -> str:
        """The key of the revision *number*; the keys are in the order of the numbers."""
        return _encoded(f"{self.prefix}history/{number:0{_DIGITS}}")

    @property
    def end(self) -> str:
        """The first key above those of all revisions."""
        return _encoded(f"{self.prefix}history0")  # '0' comes after '/'


def encode(revision: Revision, nonce: str) -> bytes:
    """Return the value for *revision*. A *nonce* has letters and digits only."""
    text = b'{"nonce":"%s",' % nonce.encode("ascii") + revision.to_json()[1:]
    return text if len(text) <= _PLAIN else zlib.compress(text)


def decode(value: bytes) -> Revision:
    """Return the revision in *value*. Raises `SourceError` if there is none."""
    return revision_from_json(value if value[:1] == b"{" else _inflated(value))


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode("ascii")


def _inflated(value: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(value, _LONGEST)
    except zlib.error as error:
        raise SourceError(f"the stored data is neither JSON nor compressed: {error}") from error
    if inflating.unconsumed_tail or not inflating.eof:
        raise SourceError(f"the stored data is cut off, or longer than {_LONGEST} bytes")
    return text


def replacement(layout: Layout, number: int, value: bytes, *, seen: int, kept: int) -> Message:
    """Return the transaction that makes *value* the revision *number* and the newest.

    It succeeds if etcd's revision *seen* wrote the newest (0: there is none), which is never the
    same for two writes. The oldest are removed so that *kept* stay. If it fails, the answer is what
    is there as the revision *number*.
    """
    text = b64encode(value).decode("ascii")
    puts = [
        {"request_put": {"key": one, "value": text}} for one in (layout.head, layout.at(number))
    ]
    old = {"key": layout.at(0), "range_end": layout.at(number - kept + 1)}
    return {
        "compare": [
            {"result": "EQUAL", "target": "MOD", "key": layout.head, "mod_revision": str(seen)}
        ],
        "success": [*puts, *([{"request_delete_range": old}] if number > kept else [])],
        "failure": [{"request_range": {"key": layout.at(number)}}],
    }


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest revision, etcd's revision that wrote its key (0: there is none), and etcd's
    revision at the time of reading."""

    revision: Revision
    written: int
    seen: int


class EtcdSource:
    """A `PolicySource` in etcd 3.4 or later.

    Nothing is sent until the first call. A `commit` is atomic, with any number of writers.
    """

    def __init__(self, url: EtcdURL) -> None:
        self._url = url
        self._layout = Layout(url.prefix)
        self._client = Client(url)
        self._last = _Newest(Revision(0), 0, 0)
        self._stream: WatchStream | None = None
        self._losses = 0
        self._waiting = threading.Lock()
        self._is_woken = self._is_closed = False

    @classmethod
    def open(
        cls, url: str, *, password: str | None = None, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Open the source at *url* (see `headgate.control.etcd.url`). Raises `OptionError`.

        *environ* is the process's environment by default: a password may be there.
        """
        environ = os.environ if environ is None else environ
        return cls(parse_etcd_url(url, password=password, environ=environ))

    @property
    def place(self) -> str:
        """The location, for messages; without passwords."""
        return str(self._url)

    def head(self) -> Revision:
        """Return the newest revision; number 0 with an empty document if there is none.

        Where the key of the newest was deleted, but not its history, it is the newest of that: a
        deletion by mistake does not lift every limit.
        """
        self._last = newest = self._newest()
        return newest.revision

    def wait(self, known: Revision, timeout: float) -> None:
        """Block until something was written or deleted.

        A lost watch returns, so that the caller reads the newest from another member, and raises
        `SourceError` when no member keeps a watch alive.
        """
        last = self._last
        if last.revision != known:
            return
        try:
            with self._waiting:
                self._wait(last, time.monotonic() + timeout)
        except EtcdError as error:
            if error.kind != "closed" and self._was_woken():
                return
            self._losses += 1
            if self._stream is not None:
                self._client.lose(self._stream.endpoint, error)
                self._close_stream()
            if not error.is_passing or self._losses > self._client.members:
                self._losses = 0
                raise
        if self._is_closed:  # `close` may end the wait between two calls to etcd
            raise EtcdError(self.place, "closed")

    def _wait(self, last: _Newest, deadline: float) -> None:
        stream, key = self._stream, self._layout.head
        if stream is None:
            # From the revision after the reading, never 0: that would be "from now on".
            stream = self._stream = self._client.watch(key, last.seen + 1)
            if self._client.ping(stream.endpoint, key) != last.written:
                self._close_stream()  # it begins with what is to be read first
                return
        while (left := deadline - time.monotonic()) > 0 and not self._was_woken():
            if stream.wait(min(left, self._url.heartbeat)):
                self._losses = 0
                return
            if self._client.ping(stream.endpoint, key) != last.written:
                return
            self._losses = 0

    def _was_woken(self) -> bool:
        was_woken, self._is_woken = self._is_woken, False
        if was_woken:
            self._close_stream()
        return was_woken

    def wake(self) -> None:
        """End a `wait`."""
        self._is_woken = True
        stream = self._stream
        if stream is not None:
            stream.abort()

    def at(self, number: int) -> Revision:
        """Return the revision *number*. Raises `UnknownRevisionError`."""
        if number > 0:
            for kv in self._client.ask(RANGE, {"key": self._layout.at(number)}).get("kvs", ()):
                return self._decoded(kv)
        raise UnknownRevisionError(
            f"there is no revision {number} at {self.place}; the last {self._url.history} are kept"
        )

    def history(self, *, before: int | None = None, most: int = 50) -> list[tuple[int, Change]]:
        """Return number and change of at most *most* revisions below *before*, newest first."""
        found: list[tuple[int, Change]] = []
        while len(found) < most:
            page = min(_PAGE, most - len(found))
            revisions = self._page(before, page)
            found.extend((one.number, one.change) for one in revisions)
            if len(revisions) < page:
                break
            before = revisions[-1].number
        return found

    def _page(self, before: int | None, most: int) -> list[Revision]:
        """Return at most *most* revisions below the number *before*, newest first."""
        layout = self._layout
        body = {
            "key": layout.at(0),
            "range_end": layout.end if before is None else layout.at(max(before, 0)),
            "limit": str(most),
            "sort_order": "DESCEND",
        }
        return [self._decoded(kv) for kv in self._client.ask(RANGE, body).get("kvs", ())]

    def commit(self, revision: Revision) -> None:
        """Make *revision* the newest, if the newest is the one just before it by number.

        Raises `ConflictError` if it is not, `ReadOnlyError` if the user may not write. When the
        answer is lost it reads whether the change was made, and raises `SourceError` only if that
        cannot be known.
        """
        number, url = revision.number, self._url
        value = encode(revision, secrets.token_hex(8))
        newest = self._newest()
        if newest.revision.number != number - 1:
            raise self._conflict(number, newest.revision.number)
        size = 2 * len(value) + _OVERHEAD
        if size > url.max_request_bytes:
            raise SourceError(
                f"revision {number} takes {size} bytes in one request, compressed and written"
                f" twice; etcd takes {url.max_request_bytes}. Nothing was changed: make the"
                " policy smaller, or raise etcd's --max-request-bytes and the option"
                " max_request_bytes here"
            )
        body = replacement(self._layout, number, value, seen=newest.written, kept=url.history)
        try:
            answer = self._client.ask(TXN, body)
        except EtcdError as error:
            if not error.is_certain:
                self._settle(number, value, newest.written, error)
                return
            if error.kind == "denied":
                raise ReadOnlyError(f"{self.place} cannot be changed: {error}") from error
            raise
        if not answer.get("succeeded"):
            self._check_own(number, value, answer["responses"][0])

    def _settle(self, number: int, value: bytes, seen: int, error: EtcdError) -> None:
        """Find out the outcome of a commit whose answer is lost; raise *error* if that fails."""
        keys = (self._layout.head, self._layout.at(number))
        body = {"success": [{"request_range": {"key": key}} for key in keys]}
        try:
            answer = self._client.ask(TXN, body, insists=True)
        except EtcdError:
            raise error from None
        head, same = answer["responses"]
        written = [int(kv["mod_revision"]) for kv in _kvs(head)]
        if written == ([seen] if seen else []):
            raise error  # the commit may still arrive
        self._check_own(number, value, same)

    def _check_own(self, number: int, value: bytes, found: Message) -> None:
        """Raise `ConflictError` unless *found*, what is there as the revision *number*, is *value*.

        Where nothing is there it was deleted, or so many came after it that it is no longer kept:
        then it may have been ours.
        """
        kvs = _kvs(found)
        if not kvs:
            raise SourceError(
                f"revision {number} is not at {self.place}, and the newest is not the one before:"
                " the change may have been made and replaced since"
            )
        if b64decode(kvs[0].get("value", "")) != value:
            raise self._conflict(number)

    def _conflict(self, number: int, newest: int | None = None) -> ConflictError:
        found = "another change came first" if newest is None else f"it is at {newest}"
        return ConflictError(f"the policy at {self.place} cannot become revision {number}: {found}")

    def close(self) -> None:
        """Close all connections; a `wait` ends with `SourceError`."""
        self._is_closed = True
        self._client.close()
        with self._waiting:
            self._close_stream()

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _newest(self) -> _Newest:
        answer = self._client.ask(RANGE, {"key": self._layout.head})
        seen = int(answer["header"]["revision"])
        for kv in answer.get("kvs", ()):
            return _Newest(self._decoded(kv), int(kv["mod_revision"]), seen)
        # *seen* is of the first reading, so that a watch from there covers the second one.
        for revision in self._page(None, 1):
            return _Newest(revision, 0, seen)
        return _Newest(Revision(0), 0, seen)

    def _decoded(self, kv: Message) -> Revision:
        try:
            return decode(b64decode(kv.get("value", "")))
        except SourceError as error:
            key = b64decode(kv["key"]).decode(errors="replace")
            raise SourceError(f"{key} in etcd: {error}") from error


def _kvs(response: Message) -> list[Message]:
    found: list[Message] = response["response_range"].get("kvs", [])
    return found
