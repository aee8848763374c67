r"""Patterns of endpoints as regular expressions over what Envoy has as the path.

Envoy's paths come with the query, and normalised: dots resolved, slashes merged, escapes of plain
letters undone, escaped slashes never there. `headgate.rules.matching.path` says in which ways the
rest may be read: a rule is for a request if it is for any of them. Here the same is said twice:

- What ordinary clients send is told exactly: letters in any case, escapes of `(` and the like, a
  slash or dots at the end, `;x=1`, `%3F` and `%23` as the end of the path or not.
- What only somebody sends who tries to get around something (control characters, overlong forms,
  escaped letters and slashes, blanks around segments, segments of dots or parameters alone) is
  not told apart: it counts as a path of every pattern. It may be limited by a rule that is not for
  it; it never escapes one that is.

The expressions are RE2's, which match the whole text. `\C` is a byte, also one that is no UTF-8.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.rules.matching.pattern import ANY, ONE, compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PLAIN: Final = re.compile(r"[a-z0-9_~!$&'()*+,=:@.-]+")
_OFTEN_ESCAPED: Final = frozenset("!$&'()*+,=:@")

_REST: Final = r"(?:(?:\?|%3f|%23)\C*)?"
_SEGMENT: Final = "[^/?]+"
_PARAMETERS: Final = "(?:(?:;|%3b)[^/?]*)?"
_LONE_BLANKS: Final = "%85|%a0"
_BLANKS: Final = (
    "%20|%c2%(?:85|a0)|%e1%9a%80|%e2%80%(?:8[0-9a]|a[89]|af)|%e2%81%9f|%e3%80%80|%ef%bb%bf"
)
_ODD_ESCAPES: Final = "[01][0-9a-f]|7f|2[def]|3[0-9]|[46][1-9a-f]|[57][0-9a]|5[cf]|7e|c[01]"
_ODD: Final = (
    r"(?:[^/]\C*)?"
    rf"|[^?]*(?:[^!-~]|[#\\]|%(?:{_ODD_ESCAPES})|/(?:;|%3b|{_BLANKS}|{_LONE_BLANKS}))\C*"
    rf"|[^?]*(?:{_BLANKS}|/\.)(?:\.|{_BLANKS}|{_LONE_BLANKS})*(?:(?:[/;?]|%3[bf]|%23)\C*)?"
)


def path_regex(endpoints: Iterable[str]) -> str | None:
    """What the paths of *endpoints* look like to Envoy; None if all of them do, as without any."""
    patterns = [compiled(one).segments for one in endpoints]
    if not patterns or (ANY,) in patterns:
        return None
    told = dict.fromkeys(map(_pattern, patterns))
    return f"(?i)(?:{'|'.join([*told, _ODD])})"


def flaw_of(endpoint: str) -> str:
    """Why the paths of *endpoint* cannot be told exactly; "" if they can."""
    segments = compiled(endpoint).segments
    if segments.count(ANY) > 1:
        return "has ** in it more than once"
    if all(one in (ONE, ANY) or _PLAIN.fullmatch(one) for one in segments):
        return ""
    return "has letters in it that Envoy sees escaped"


def _pattern(segments: Sequence[str]) -> str:
    if segments.count(ANY) > 1:  # of very long paths the middle is not looked at by rules either
        last = len(segments) - 1 - segments[::-1].index(ANY)
        segments = (*segments[: segments.index(ANY)], *segments[last:])
    if segments[-1:] == (ANY,):
        return f"{_row(segments[:-1])}(?:(?:[/?]|%3f|%23)" + r"\C*)?"
    return f"{_row(segments) or '/'}/*{_REST}"


def _row(segments: Sequence[str]) -> str:
    return "".join(f"(?:/+{_SEGMENT})*" if one == ANY else f"/+{_one(one)}" for one in segments)


def _one(segment: str) -> str:
    if segment == ONE or not _PLAIN.fullmatch(segment):
        return _SEGMENT
    letters = "".join(map(_letter, segment))
    return rf"{letters}(?:\.|{_LONE_BLANKS})*{_PARAMETERS}"


def _letter(letter: str) -> str:
    if letter in _OFTEN_ESCAPED:
        return f"(?:{re.escape(letter)}|%{ord(letter):02x})"
    return re.escape(letter)
