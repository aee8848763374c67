"""What a response says of the limit: admitted, refused by it or by something else, or nothing.

A refusal of Headgate names the rule (`limit` in the body, of JSON and of problem details alike),
and `RateLimit-Policy` says what its limits are. If the rule is known by its id, the name decides.
If only the limit is known, in words, a refusal by a rule whose policy is another one is somebody
else's. Where nothing is told, as by other limiters, every 429 is taken to be of the limit that is
tested.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.loadtest.record import Fate
from headgate.responses.bodies import BLOCKED, BUSY, OUTAGE
from headgate.responses.ratelimit_draft11 import phrases_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.loadtest.aims import Aim

LARGEST_BODY: Final = 65_536
"""Bytes of a refusal that are read."""

_LONGEST_NAME: Final = 200
_CAUSES: Final = {BUSY: "a shortage of capacity", BLOCKED: "a block"}
_OTHERS: Final = {
    text: cause for (kind, _, title), cause in _CAUSES.items() for text in (kind, title)
}
"""By the `error` of a refusal, or the title of problem details: what refused that is no limit."""

_DURATION: Final = re.compile(r"(?:^|,)\s*headgate\s*;[^,]*?\bdur=([0-9]+(?:\.[0-9]+)?)")
_REMAINING: Final = re.compile(r'"((?:[^"\\]|\\.)*)";r=([0-9]{1,15})')
_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
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


class AnswerReader:
    """Reads responses to requests that are to be limited as *aim* says.

    *admitted* are statuses besides those from 200 to 299 that only an admitted request can get.
    """

    def __init__(self, aim: Aim, *, admitted: frozenset[int] = frozenset()) -> None:
        self._aim = aim
        self._admitted = admitted
        self._quota = min(limit.quota for limit in aim.limits)

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
            return Read(Fate.ELSEWHERE, f"{cause} ({_shown(name)})" if name else cause)
        if reply.status == 503:  # of the app itself: who knows why
            return Read(Fate.FAILED, "status 503")
        if not isinstance(name, str) or self._is_ours(name, reply.headers):
            return Read(Fate.REFUSED)
        told = "; ".join(sorted(_policies(name, reply.headers)))
        return Read(Fate.ELSEWHERE, f"the rule {_shown(told or name)}")

    def _is_ours(self, name: str, headers: Mapping[str, str]) -> bool:
        if self._aim.rule_id is not None:
            return name == self._aim.rule_id
        told = _policies(name, headers)
        if not told:
            return True
        limits = enumerate(self._aim.limits, 1)
        names = ((name if place == 1 else f"{name}/{place}", limit) for place, limit in limits)
        return told == {phrases_of(named, limit).policy for named, limit in names}

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


def _shown(name: object) -> str:
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


def decided_ns(headers: Mapping[str, str]) -> int | None:
    """How long the decision took, if the server told: `Server-Timing: headgate;dur=0.21`, in
    milliseconds, or the same in `Headgate-Decision`."""
    value = headers.get("Server-Timing", "") or headers.get("Headgate-Decision", "")
    found = _DURATION.search(value) if value else None
    return None if found is None else round(float(found[1]) * 1_000_000)


def _content(body: bytes) -> dict[str, object]:
    """The object that *body* is in JSON; an empty one if it is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
