"""The port between the store and its transports: requests and scripts.

A request is one command for one server, sent at most once. The transport finds the server, sends
the request, and calls exactly one of `answered` and `failed`, exactly once. It sends a request
again only when the server has said that it did not carry it out: NOSCRIPT, MOVED, ASK, TRYAGAIN. A
request that may have been carried out, because the connection broke or time was up after it was
written, fails.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.errors import StoreError


Reply = Any
"""A parsed reply: int, bytes, None, or a list of them.

An error inside a list is an instance of `hiredis.ReplyError`.
"""


class Request(ABC):
    """One command for one server. All its keys are in one slot."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> bytes:
        """One of its keys: it decides which node of a cluster the request is for."""

    @abstractmethod
    def packed(self) -> bytes:
        """The command, ready to be written; a script by its digest."""

    @abstractmethod
    def packed_whole(self) -> bytes:
        """The command with the script's text, to be written after NOSCRIPT."""

    @abstractmethod
    def answered(self, reply: Reply) -> None:
        """Take the *reply* of the server, which carried it out; it is no error."""

    @abstractmethod
    def failed(self, error: StoreError) -> None:
        """Take the *error*: it was not carried out, or that is unknown."""

    def parts(self) -> Sequence[Request]:
        """Return smaller requests that together do the same, to be sent after TRYAGAIN."""
        return (self,)


class Transport(ABC):
    """A way to servers for callers that may block. Safe to share among threads."""

    is_cluster: bool
    """True if the keys of one request have to be in one slot."""

    @abstractmethod
    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        """Send all *requests* and wait until each is answered or has failed.

        Requests for one server travel in one write and are carried out in their order. Returns
        at the *deadline* (monotonic seconds; the store's timeout from now on if there is none),
        whatever the server does. A call that has to connect has the connect timeout for that, and
        its full timeout afterwards.
        """

    def owner_of(self, slot: int) -> str:
        """Return the address of the node that serves *slot*; "" if that is not known."""
        return ""

    @abstractmethod
    def connecting_until(self, key: bytes) -> float:
        """Return when connecting to the server of *key* ends at the latest; 0.0 if it is not
        being connected to. A call that waits for it waits longer than its timeout."""

    @abstractmethod
    def close(self) -> None:
        """Drop all connections. Requests from now on fail."""


class AsyncTransport(ABC):
    """A way to servers for event loops."""

    is_cluster: bool

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Send *request* now, if its server is connected, else as soon as it is.

        To be called in a running event loop, where `answered` or `failed` will be called too, as
        soon as for `Transport.perform`. Requests for one server are carried out in the order in
        which they were submitted.
        """

    def owner_of(self, slot: int) -> str:
        """Return the owner of *slot* as far as is known in the running event loop; else ""."""
        return ""

    @abstractmethod
    async def aclose(self) -> None:
        """Drop all connections. Requests from now on fail."""


# A line `--@ name name` in a Lua file includes the fragments of those names: what several scripts
# share is written once, and each script is still one text.
_INCLUDED: Final = re.compile(r"^ *--@ ([a-z_ ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest by which the server knows it."""

    name: str
    text: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """Return the script of the operation *name*."""
    text = _text(name).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _text(name: str) -> str:
    source = files("headgate.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")
    return _INCLUDED.sub(lambda found: "\n".join(map(_text, found[1].split())), source)
