"""What a response says of the limit: admitted, refused by it or by something else, or nothing.

A refusal of Headgate names the rule (`limit` in the body, of JSON and of problem details alike),
and `RateLimit-Policy` says what its limits are. If the rule is known by its id, the name decides.
If only the limit is known, in words, a refusal by a rule whose policy is another one is somebody
else's. Where nothing is told, as by other limiters, every 429 is taken to be of the limit that is
tested. A request with a debug token has who refused it in `Headgate-Decision`, even without a body.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.loadtest.record import Fate
from headgate.responses.bodies import BLOCKED, BUSY, OUTAGE
from headgate.responses.debug import DECISION
from headgate.responses.ratelimit_draft11 import policy_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.loadtest.options import Aim

_LARGEST_CONTENT: Final = 65_536
_GZIP: Final = (b"\x1f\x8b", 31)
"""How what is compressed with gzip begins, and what zlib calls that."""

_LONGEST_NAME: Final = 200
_MOST_KEPT: Final = 100
_CAUSES: Final = {BUSY: "a shortage of capacity", BLOCKED: "a block"}
_OTHERS: Final = {
    text: cause for (kind, _, title), cause in _CAUSES.items() for text in (kind, title)
}
"""By the `error` of a refusal, or the title of problem details: what refused that is no limit."""

_REMAINING: Final = re.compile(r'"((?:[^"\\]|\\.)*)";r=([0-9]{1,15})')
_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLACE: Final = re.compile("/[0-9]+$")
_PARAMETER: Final = re.compile(r";([a-z]+)=([^;,]*)")
_SECONDS: Final = re.compile("[0-9]{1,15}")


class Reply(NamedTuple):
    """The part of a response that matters here; the names in *headers* may be in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Read(NamedTuple):
    """What a response says. *by* is who else refused, or why it says nothing."""

    fate: Fate
    by: str = ""


class Traced(NamedTuple):
    """What `Headgate-Decision` says of one limit of *rule*; *revision* is of the policy."""

    rule: str
    refuses: bool
    source: str
    revision: str


class AnswerReader:
    """Reads responses to requests that are to be limited as *aim* says.

    *admitted* are statuses besides those from 200 to 299 that only an admitted request can get.
    """

    def __init__(self, aim: Aim, *, admitted: frozenset[int] = frozenset()) -> None:
        self._aim = aim
        self._admitted = admitted
        self._quota = min(limit.quota for limit in aim.limits)
        self._judged: dict[tuple[str, str], bool] = {}

    def read(self, reply: Reply) -> Read:
        """Whether the request was admitted, and if not, by whom it was refused."""
        status = reply.status
        if 200 <= status < 300 or status in self._admitted:
            return Read(Fate.ADMITTED)
        if status in (429, 503):
            return self._refused(reply)
        return Read(Fate.FAILED, f"status {status}")

    def _refused(self, reply: Reply) -> Read:
        content = _content(reply.body)
        kind, name = str(content.get("error") or content.get("title")), content.get("limit")
        if kind in (OUTAGE[0], OUTAGE[2]):
            return Read(Fate.FAILED, f"status {reply.status}: {OUTAGE[0]}")
        cause = _OTHERS.get(kind)
        if cause is not None:
            return Read(Fate.ELSEWHERE, f"{cause} ({shown(name)})" if name else cause)
        if reply.status == 503:  # of the app itself: who knows why
            return Read(Fate.FAILED, "status 503")
        if not isinstance(name, str):
            return self._refused_by(traced_in(reply.headers))
        if self._is_ours(name, reply.headers):
            return Read(Fate.REFUSED)
        told = "; ".join(sorted(_policies(name, reply.headers)))
        return Read(Fate.ELSEWHERE, f"the rule {shown(told or name)}")

    def _refused_by(self, traced: Iterable[Traced]) -> Read:
        """Who refused, by what is told to those with a debug token: ours, if nothing is."""
        names = {one.rule for one in traced if one.refuses}
        if self._aim.rule_id is None or not names or self._aim.rule_id in names:
            return Read(Fate.REFUSED)
        return Read(Fate.ELSEWHERE, f"the rule {shown(', '.join(sorted(names)))}")

    def _is_ours(self, name: str, headers: Mapping[str, str]) -> bool:
        if self._aim.rule_id is not None:
            return name == self._aim.rule_id
        said = name, headers.get("RateLimit-Policy", "")
        is_ours = self._judged.get(said)
        if is_ours is None:
            is_ours = self._is_the_same(name, headers)
            if len(self._judged) < _MOST_KEPT:
                self._judged[said] = is_ours
        return is_ours

    def _is_the_same(self, name: str, headers: Mapping[str, str]) -> bool:
        """Whether the rule *name* has the limits in words, as far as *headers* tell."""
        told = _policies(name, headers)
        if not told:
            return True
        limits = enumerate(self._aim.limits, 1)
        names = ((name if place == 1 else f"{name}/{place}", limit) for place, limit in limits)
        return told == {policy_item(named, limit) for named, limit in names}

    def traced(self, headers: Mapping[str, str]) -> Iterator[Traced]:
        """What is told of the rule that is tested: of all of them, if its id is not known."""
        rule_id = self._aim.rule_id
        return (one for one in traced_in(headers) if rule_id in (None, one.rule))

    @property
    def cost(self) -> int:
        """What a request costs."""
        return self._aim.cost

    def used(self, headers: Mapping[str, str]) -> int:
        """How much of the limit is in use, as a response with *headers* tells; 0 if it does not."""
        left = self._remaining(headers)
        return 0 if left is None else max(0, self._quota - left)

    def _remaining(self, headers: Mapping[str, str]) -> int | None:
        """What is left of the limit; None if there are several, or it is not told."""
        if len(self._aim.limits) > 1:
            return None
        if self._aim.rule_id is not None:
            left = dict(_REMAINING.findall(headers.get("RateLimit", "")))
            if self._aim.rule_id in left:
                return int(left[self._aim.rule_id])
        if headers.get("X-RateLimit-Limit", "") == str(self._quota):
            value = headers.get("X-RateLimit-Remaining", "").strip()
            return int(value) if _SECONDS.fullmatch(value) else None
        return None


def shown(name: object) -> str:
    """What a server said, with nothing in it that a terminal would obey."""
    text = str(name)[:_LONGEST_NAME]
    return text if text.isprintable() else ascii(text)


def _policies(name: str, headers: Mapping[str, str]) -> set[str]:
    """What `RateLimit-Policy` says of the rule *name*: a text for each of its limits."""
    items = {item.strip() for item in _ITEM.findall(headers.get("RateLimit-Policy", ""))}
    return {item for item in items if item.startswith((f'"{name}";', f'"{name}/'))}


def retry_after_fault(headers: Mapping[str, str]) -> str | None:
    """What is wrong with `Retry-After` of a refusal: missing, bad (0, or no number); else None.

    A date is as good as a number.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return "missing"
    if _SECONDS.fullmatch(value):
        return None if int(value) else "bad"
    return None if value.endswith("GMT") else "bad"


def traced_in(headers: Mapping[str, str]) -> list[Traced]:
    """What `Headgate-Decision` says, item by item; nothing without it, or if it is unreadable."""
    found = []
    for item in _ITEM.findall(headers.get(DECISION, "")):
        name = _TEXT.match(item.strip())
        if name is None:
            continue
        told = dict(_PARAMETER.findall(_TEXT.sub("", item)))
        refuses = told.get("allowed") == "?0" and told.get("mode") == "enforce"
        rule = _PLACE.sub("", name[1])
        found.append(Traced(rule, refuses, told.get("source", ""), told.get("revision", "")))
    return found


def _content(body: bytes) -> dict[str, object]:
    """The object that *body* is in JSON; an empty one if it is none."""
    begin, kind = _GZIP
    try:
        if body.startswith(begin):
            body = zlib.decompressobj(kind).decompress(body, _LARGEST_CONTENT)
        content = json.loads(body)
    except (ValueError, RecursionError, zlib.error):
        return {}
    return content if isinstance(content, dict) else {}
