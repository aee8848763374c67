"""The trace of a decision in the response, for a client with a token.

    Headgate-Debug: 1763323200.5d0c...                  in the request: a token that expires
    Headgate-Decision: "per-tenant";allowed=?0;mode=enforce;key="tenant=~0d3b5a91c2e4";
        counter="8=headgate=per-tenant";limit="100/s";used=100;remaining=0;cost=1;source=store;
        revision=12, "per-ip";...                       in the response: every rule that applied

The token is a time, in seconds since the epoch, and a keyed hash of it. The operator makes one (by
the admin API) for the person who debugs; it expires at that time. Without a token the response does
not even show that there is such a header. The field is a list (RFC 9651).

No cache may keep a response with a trace. The field is short: servers with room for 4 kB of headers
would fail the request otherwise.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from headgate.errors import OptionError
from headgate.responses.ratelimit_draft11 import quoted
from headgate.units import SECOND, bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEBUG: Final = "Headgate-Debug"
DECISION: Final = "Headgate-Decision"

LONGEST_TTL_S: Final = 86_400
"""The longest lifetime of a token, in seconds."""

NO_STORE: Final = ("Cache-Control", "no-store")
"""The line that keeps a response with a trace out of caches."""

LONGEST_LINE: Final = 2_000
"""The most characters of the header."""

_PURPOSE: Final = b"headgate debug token\0"
_TOKEN: Final = re.compile(r"([0-9]{1,12})\.([0-9a-f]{64})")
_LONGEST: Final = 200
_MORE: Final = "more;count={}"
_ROOM: Final = LONGEST_LINE - len(f", {_MORE}") - 8
_CUT: Final = re.compile("%.?$")
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_WORD: Final = re.compile(r"[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]*")


def debug_token(secret: bytes, *, now_ns: int, ttl_s: int) -> tuple[str, int]:
    """A token that expires in *ttl_s* seconds, and the epoch second of that."""
    if not secret:
        raise OptionError("a debug token is signed with a secret, and there is none")
    if not 1 <= ttl_s <= LONGEST_TTL_S:
        raise OptionError(f"ttl is {ttl_s!r} s; expected 1 to {LONGEST_TTL_S}")
    ends = -(-now_ns // SECOND) + ttl_s
    return f"{ends}.{_signature(secret, str(ends))}", ends


def is_genuine(token: str, secret: bytes, *, now_ns: int) -> bool:
    """True if *token* was made with *secret* and has not expired."""
    read = _TOKEN.fullmatch(token) if secret else None
    if read is None:
        return False
    ends = read[1]
    if not now_ns < int(ends) * SECOND <= now_ns + (LONGEST_TTL_S + 1) * SECOND:
        return False
    return hmac.compare_digest(_signature(secret, ends), read[2])


@dataclass(frozen=True, slots=True)
class Traced:
    """The decision of one limit of a rule: *key* as it may be shown, *counter* as in the store.

    *remaining* is None if nothing was counted. Empty fields are left out: a place in a fair queue
    has neither a counter nor a limit.
    """

    rule: str
    _: KW_ONLY
    allowed: bool
    mode: str
    cost: int
    source: str
    revision: int
    key: str = ""
    counter: str = ""
    limit: str = ""
    quota: int = 0
    remaining: int | None = None

    @property
    def denies(self) -> bool:
        """True if it denied the request."""
        return not self.allowed and self.mode == "enforce"


def decision_lines(traced: Iterable[Traced]) -> list[tuple[str, str]]:
    """Return the headers of a response with the trace *traced*; `none` if no rule applied.

    If there is no room for all, denials come first, and `more` has the number of those left out.
    """
    shown = list(traced)
    items = list(map(_item, shown))
    if sum(map(len, items)) + 2 * len(items) > LONGEST_LINE:
        items = _fitting(shown, items)
    return [(DECISION, ", ".join(items) or "none"), NO_STORE]


def _fitting(shown: Sequence[Traced], items: Sequence[str]) -> list[str]:
    """The *items* that fit, in their order, and the number of the others."""
    room, chosen = _ROOM, set()
    for place in sorted(range(len(items)), key=lambda place: not shown[place].denies):
        room -= len(items[place]) + 2
        if room < 0:
            break
        chosen.add(place)
    kept = [item for place, item in enumerate(items) if place in chosen]
    return [*kept, _MORE.format(len(items) - len(kept))]


def _item(one: Traced) -> str:
    limit = f";limit={_text(one.limit)}" if one.limit else ""
    if one.remaining is not None:
        used = max(0, one.quota - one.remaining)
        limit += f";used={bounded(used)};remaining={bounded(one.remaining)}"
    whose = f";key={_text(one.key)}" if one.key else ""
    whose += f";counter={_text(one.counter)}" if one.counter else ""
    return (
        f"{_text(one.rule)};allowed=?{one.allowed:d};mode={_word(one.mode)}{whose}{limit}"
        f";cost={bounded(one.cost)};source={_word(one.source)};revision={bounded(one.revision)}"
    )


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    """*text* as a String; other characters are escaped as in a URL."""
    cut = text[: _LONGEST + 1]
    if not (cut.isascii() and cut.isprintable()):
        cut = quote(cut.encode("utf-8", "surrogatepass"), safe=_PRINTABLE)
    if len(cut) > _LONGEST:
        cut = _CUT.sub("", cut[:_LONGEST]) + "..."
    return quoted(cut)


def _signature(secret: bytes, ends: str) -> str:
    return hmac.digest(secret, _PURPOSE + ends.encode(), "sha256").hex()
