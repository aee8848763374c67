"""`EtcdStorage`: the policy of a fleet, in etcd."""

from __future__ import annotations

import asyncio
import os
import secrets
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from headgate.control.etcd.client import Client
from headgate.control.etcd.errors import EtcdError
from headgate.control.etcd.messages import (
    DELETE,
    DESCENDING,
    EQUAL,
    MOD,
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
)
from headgate.control.etcd.url import parse_etcd_url
from headgate.control.revision import (
    ConflictError,
    ReadOnlyError,
    Revision,
    StorageError,
    UnknownRevisionError,
    revision_from_json,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from headgate.control.etcd.client import WatchStream
    from headgate.control.etcd.url import EtcdURL
    from headgate.control.revision import Change


# How revisions lie in etcd.
#
#     <prefix>policy                          the newest revision
#     <prefix>history/<number, 20 digits>     each revision that is kept, the newest too
#
# A value is the JSON of `Revision.to_json` with one more member in front: a `nonce`, by which a
# writer knows again what it wrote when it lost the answer. What is longer than 16 KiB is compressed
# by zlib. Both can be told by the first byte: JSON begins with a brace.


_PLAIN: Final = 16_384
_LONGEST: Final = 64 * 2**20
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys below *prefix*."""

    prefix: str

    @property
    def head(self) -> bytes:
        """The key of the newest revision."""
        return f"{self.prefix}policy".encode()

    @property
    def oldest(self) -> bytes:
        """What no key of a revision is below."""
        return self.at(0)

    def at(self, number: int) -> bytes:
        """The key of the revision *number*; the keys are in the order of the numbers."""
        return f"{self.prefix}history/{number:0{_DIGITS}}".encode()

    @property
    def end(self) -> bytes:
        """What the key of every revision is below."""
        return f"{self.prefix}history0".encode()  # '0' comes after '/'


def encode(revision: Revision, nonce: str) -> bytes:
    """The value for *revision*. A *nonce* is of letters and digits only."""
    text = b'{"nonce":"%s",' % nonce.encode("ascii") + revision.to_json()[1:]
    return text if len(text) <= _PLAIN else zlib.compress(text)


def decode(value: bytes) -> Revision:
    """The revision in *value*. Raises `StorageError` if there is none."""
    return revision_from_json(value if value[:1] == b"{" else _inflated(value))


def _inflated(value: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(value, _LONGEST)
    except zlib.error as error:
        raise StorageError(f"what is kept is neither JSON nor compressed: {error}") from error
    if inflating.unconsumed_tail or not inflating.eof:
        raise StorageError(f"what is kept is cut off, or longer than {_LONGEST} bytes")
    return text


# The requests that are sent to etcd, made without I/O.


def one(key: bytes) -> Any:
    """What *key* has."""
    return RangeRequest(key=key)


def newest(layout: Layout, *, before: int | None, most: int) -> Any:
    """At most *most* revisions below the number *before*, the newest first."""
    end = layout.end if before is None else layout.at(max(before, 0))
    return RangeRequest(key=layout.oldest, range_end=end, limit=most, sort_order=DESCENDING)


def replacement(layout: Layout, number: int, value: bytes, *, seen: int, kept: int) -> Any:
    """Make *value* the revision *number* and the newest, if the newest is still the one *seen*.

    *seen* is etcd's revision that wrote the newest, 0 if there is none: never the same for two
    writes. The oldest are removed so that *kept* stay. If the newest is another, the answer is what
    is there as the revision *number*.
    """
    request = TxnRequest()
    request.compare.add(result=EQUAL, target=MOD, key=layout.head, mod_revision=seen)
    for key in (layout.head, layout.at(number)):
        put = request.success.add().request_put
        put.key, put.value = key, value
    if number > kept:
        old = request.success.add().request_delete_range
        old.key, old.range_end = layout.oldest, layout.at(number - kept + 1)
    request.failure.add().request_range.key = layout.at(number)
    return request


def inspection(layout: Layout, number: int) -> Any:
    """The newest, and what is there as the revision *number*, at the same moment."""
    request = TxnRequest()
    request.success.add().request_range.key = layout.head
    request.success.add().request_range.key = layout.at(number)
    return request


_PAGE: Final = 10
"""How many revisions are read at a time: each may be half of etcd's largest request."""

_OVERHEAD: Final = 512
"""Bytes that etcd itself adds to a request before it looks at the size."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest revision, etcd's revision that wrote its key (0: there is none), and etcd's
    revision at which it was so."""

    revision: Revision
    written: int
    seen: int


class EtcdStorage:
    """Keeps a policy in etcd 3.4 or later; a `PolicyStorage` for one event loop.

    Nothing is asked until somebody asks. What is done in a `commit` is done as a whole, however
    many write at the same time.
    """

    def __init__(self, url: EtcdURL) -> None:
        self._url = url
        self._layout = Layout(url.prefix)
        self._client = Client(url)

    @classmethod
    def open(
        cls, url: str, *, password: str | None = None, environ: Mapping[str, str] | None = None
    ) -> Self:
        """The storage at *url* (see `headgate.control.etcd.url`). Raises `OptionError`.

        *environ* is the process's environment, if not said: a password may be there.
        """
        environ = os.environ if environ is None else environ
        return cls(parse_etcd_url(url, password=password, environ=environ))

    @property
    def place(self) -> str:
        """Where it is, for messages; without passwords."""
        return str(self._url)

    async def head(self) -> Revision:
        """The newest revision; number 0 with an empty document if there is none.

        Where the key of the newest was deleted, but not its history, it is the newest of that: a
        deletion by mistake does not lift every limit.
        """
        return (await self._newest()).revision

    async def at(self, number: int) -> Revision:
        """The revision *number*. Raises `UnknownRevisionError`."""
        if number > 0:
            found = await self._client.ask(RANGE, one(self._layout.at(number)))
            for kv in found.kvs:
                return self._decoded(kv)
        raise UnknownRevisionError(
            f"there is no revision {number} at {self.place};"
            f" the last {self._url.options.history} are kept"
        )

    async def history(
        self, *, before: int | None = None, most: int = 50
    ) -> list[tuple[int, Change]]:
        """Number and change of at most *most* revisions below *before*, the newest first."""
        found: list[tuple[int, Change]] = []
        while len(found) < most:
            page = min(_PAGE, most - len(found))
            request = newest(self._layout, before=before, most=page)
            answer = await self._client.ask(RANGE, request)
            # Ten large ones take long enough to keep others waiting.
            revisions = await asyncio.to_thread(lambda kvs: [*map(self._decoded, kvs)], answer.kvs)
            found.extend((one.number, one.change) for one in revisions)
            if len(revisions) < page:
                break
            before = revisions[-1].number
        return found

    async def commit(self, revision: Revision) -> None:
        """Make *revision* the newest, if the newest is the one just before it by number.

        Raises `ConflictError` if it is not, `ReadOnlyError` if the user may not write. When the
        answer is lost it looks whether the change was made, and raises `StorageError` only if that
        cannot be known.
        """
        number, options = revision.number, self._url.options
        value = encode(revision, secrets.token_hex(8))
        newest = await self._newest()
        if newest.revision.number != number - 1:
            raise self._conflict(number, newest.revision.number)
        request = replacement(
            self._layout, number, value, seen=newest.written, kept=options.history
        )
        size = request.ByteSize() + _OVERHEAD
        if size > options.max_request_bytes:
            raise StorageError(
                f"revision {number} takes {size} bytes in one request, compressed and written"
                f" twice; etcd takes {options.max_request_bytes}. Nothing was changed: make the"
                " policy smaller, or raise etcd's --max-request-bytes and the option"
                " max_request_bytes here"
            )
        try:
            answer = await self._client.ask(TXN, request)
        except EtcdError as error:
            if not error.is_certain:
                return await self._settle(number, value, newest.written, error)
            if error.kind == "denied":
                raise ReadOnlyError(f"nothing can be changed at {self.place}: {error}") from error
            raise
        if not answer.succeeded:
            self._refuse_another(number, value, answer.responses[0])
        return None

    async def _settle(self, number: int, value: bytes, seen: int, error: EtcdError) -> None:
        """Find out what came of a commit whose answer is lost; raise *error* if nobody knows."""
        request = inspection(self._layout, number)
        try:
            answer = await self._client.ask(TXN, request, insists=True)
        except EtcdError:
            raise error from None
        head, same = answer.responses
        if [kv.mod_revision for kv in head.response_range.kvs] == ([seen] if seen else []):
            raise error  # it may still be on its way
        self._refuse_another(number, value, same)

    def _refuse_another(self, number: int, value: bytes, found: Any) -> None:
        """Raise `ConflictError` unless *found*, what is there as the revision *number*, is *value*.

        Where nothing is there it was deleted, or so many came after it that it is no longer kept:
        then it may have been ours.
        """
        if not found.response_range.kvs:
            raise StorageError(
                f"revision {number} is not at {self.place}, and the newest is not the one before:"
                " if it was made it is gone"
            )
        if found.response_range.kvs[0].value != value:
            raise self._conflict(number)

    def _conflict(self, number: int, newest: int | None = None) -> ConflictError:
        found = "somebody has changed it meanwhile" if newest is None else f"it is at {newest}"
        return ConflictError(f"the policy at {self.place} cannot become revision {number}: {found}")

    async def watch(self, after: int) -> AsyncIterator[Revision]:
        """The newest revision whenever it is another than number *after*, or than the one given
        last.

        A watch that ends goes on with another member, from a fresh look; `StorageError` is raised
        when no member answers, or none of them lets a watch live.
        """
        given: Revision | None = None
        failures = 0
        while True:
            newest = await self._newest()
            found = newest.revision
            is_news = found.number != after if given is None else found != given
            if is_news:
                yield found
            given = found
            stream: WatchStream | None = None
            try:
                # From the revision after the look, never 0: that would be "from now on".
                stream = await self._client.watch(self._layout.head, newest.seen + 1)
                while True:
                    events = await stream.events()
                    failures = 0
                    if events and events[-1].type == DELETE:
                        break
                    if events and (found := self._decoded(events[-1].kv)) != given:
                        given = found
                        yield found
            except EtcdError as error:
                failures += 1
                if stream is not None:
                    self._client.lose(stream, error)
                if not error.is_passing or failures > self._client.members:
                    raise
            finally:
                if stream is not None:
                    stream.cancel()

    async def aclose(self) -> None:
        """Close all connections; a watch ends with a `StorageError`."""
        await self._client.aclose()

    async def _newest(self) -> _Newest:
        answer = await self._client.ask(RANGE, one(self._layout.head))
        for kv in answer.kvs:
            return _Newest(self._decoded(kv), kv.mod_revision, answer.header.revision)
        # Taken first, so that a watch from there on sees what is written during the second look.
        seen = answer.header.revision
        request = newest(self._layout, before=None, most=1)
        for kv in (await self._client.ask(RANGE, request)).kvs:
            return _Newest(self._decoded(kv), 0, seen)
        return _Newest(Revision(0), 0, seen)

    def _decoded(self, kv: Any) -> Revision:
        try:
            return decode(kv.value)
        except StorageError as error:
            raise StorageError(f"{kv.key.decode(errors='replace')} in etcd: {error}") from error
