"""What the store asks of a transport: requests, each sent at most once.

A request is one command for one server. The transport finds the server, sends it, and calls
exactly one of `answered` and `failed`, exactly once. It sends a request again only when the server
has said that it did not carry it out: NOSCRIPT, MOVED, ASK, TRYAGAIN. A request that may have been
carried out, because the connection broke or time was up after it was written, fails.
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
"""What the protocol's parser made of a reply: int, bytes, None, or a list of them.

An error inside a list is an instance of `hiredis.ReplyError`.
"""


class Request(ABC):
    """One command for one server. All its keys are in one slot."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> bytes:
        """One of its keys: what decides which node of a cluster it is for."""

    @abstractmethod
    def packed(self) -> bytes:
        """The command, ready to be written; a script by its digest."""

    @abstractmethod
    def packed_whole(self) -> bytes:
        """The same with the script's text: what to write after NOSCRIPT."""

    @abstractmethod
    def answered(self, reply: Reply) -> None:
        """The server carried it out and said *reply*, which is no error."""

    @abstractmethod
    def failed(self, error: StoreError) -> None:
        """It was not carried out or, if it was, nobody knows."""

    def parts(self) -> Sequence[Request]:
        """Smaller requests that together do the same, if there are: what to send on TRYAGAIN."""
        return (self,)


class Transport(ABC):
    """Servers, for callers that may block. Safe to share among threads."""

    is_cluster: bool
    """Whether keys have to be in one slot to be asked for together."""

    @abstractmethod
    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        """Send all *requests* and wait until each is answered or has failed.

        Requests for one server travel in one write and are carried out in their order. Returns
        at the *deadline* (monotonic seconds), that of the store from now on if there is none,
        whatever the server does.
        """

    def owner_of(self, slot: int) -> str:
        """The address of the node of a cluster that serves *slot*; "" if that is not known."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Drop all connections. Requests from now on fail."""


class AsyncTransport(ABC):
    """The same for event loops."""

    is_cluster: bool

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Send *request* now, if its server is connected, else as soon as it is.

        To be called in a running event loop, where `answered` or `failed` will be called too, at
        the latest at the deadline of the store. Requests for one server are carried out in the
        order in which they were submitted.
        """

    def owner_of(self, slot: int) -> str:
        """As `Transport.owner_of`, as far as is known in the running event loop."""
        return ""

    @abstractmethod
    async def aclose(self) -> None:
        """Drop all connections. Requests from now on fail."""


# The Lua scripts, put together from their files.
#
# There is one file per operation. A line `--@ name name` in it stands for the files of those names,
# so that what several operations share is written once and each script is still one text.


_INCLUDED: Final = re.compile(r"^ *--@ ([a-z ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest by which the server knows it."""

    name: str
    text: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """The script of the operation *name*."""
    text = _text(name).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _text(name: str) -> str:
    source = files("headgate.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")
    return _INCLUDED.sub(lambda found: "\n".join(map(_text, found[1].split())), source)
