"""What a request says of its caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headgate.rules.matching import cookie_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.identity.address import Address
    from headgate.identity.forwarding import Trail
    from headgate.rules.model import Identity, Source
    from headgate.rules.request import Request

UNKNOWN: Final = "unknown"
"""The address of all callers that have none, together."""

_BLANKS: Final = " \t"


class Found(Mapping[str, str | None]):
    """The value of every source of an identity, by name; None for what the caller did not say.

    Each is read when it is first asked for. Values are as they came, secrets too, and as long as
    the server let them be: they are for comparing, not for showing.
    """

    __slots__ = ("_identity", "_ip", "_trail", "_values", "part_texts", "request")

    def __init__(self, request: Request, identity: Identity, trail: Trail) -> None:
        self.request: Final = request
        self.part_texts: Final[dict[str, str | None]] = {}
        self._identity = identity
        self._trail = trail
        self._values: dict[str, str | None] = {}
        self._ip: str | None = None

    def __getitem__(self, name: str) -> str | None:
        values = self._values
        if name in values:
            return values[name]
        source = self._identity.sources[name]
        header = source.header
        if header is None:
            value = self.value(source)
        else:  # the common case, without two calls
            line = self.request.header(header)
            value = source.default if line is None else line.strip(_BLANKS) or source.default
        values[name] = value
        return value

    # The one of `Mapping` takes any type of default, and three times as long.
    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return self[name] if name in self._identity.sources else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._identity.sources)

    def __len__(self) -> int:
        return len(self._identity.sources)

    def __repr__(self) -> str:
        return f"Found({', '.join(self)})"  # no values: there may be secrets among them

    @property
    def address(self) -> Address | None:
        """The address of the client, as far as it is sure."""
        return self._trail.client(self.request)

    @property
    def ip(self) -> str:
        """The addresses that count as one caller with this one, as text; `UNKNOWN` for none."""
        found = self._ip
        if found is None:
            found = self._ip = self._trail.client_key(self.request) or UNKNOWN
        return found

    def value(self, source: Source) -> str | None:
        """What *source* has, else its default."""
        stated = self.stated(source)
        return source.default if stated is None else stated

    def stated(self, source: Source) -> str | None:
        """What the request itself says where *source* looks; None if nothing, or an empty text."""
        if source.header is not None:
            line = self.request.header(source.header)
            return None if line is None else line.strip(_BLANKS) or None
        if source.cookie is not None:
            return cookie_of(self.request, source.cookie).value
        if source.attribute is not None:
            return self.request.attributes.get(source.attribute) or None
        other = None if source.lookup is None else self[source.lookup]
        return None if other is None else source.values.get(other)

    def is_ambiguous(self, source: Source) -> bool:
        """Whether what *source* has can be read in several ways: it counts as missing."""
        if source.lookup is not None:
            return self.is_ambiguous(self._identity.sources[source.lookup])
        return source.cookie is not None and cookie_of(self.request, source.cookie).is_ambiguous
