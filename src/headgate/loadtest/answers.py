"""Read responses: allowed, denied by the tested limit or by something else, or failed.

A denial of Headgate names the rule (`limit` in the body, of JSON and of problem details alike), and
`RateLimit-Policy` names its limits. If the id of the rule is known, the name decides. If only the
limit is known, a denial by a rule with another policy does not count. Without either, as from other
limiters, every 429 is a denial of the tested limit.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.loadtest.record import Result
from headgate.responses.bodies import BLOCKED, BUSY, OUTAGE
from headgate.responses.ratelimit_draft11 import policy_item
from headgate.terminal import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.loadtest.limit_under_test import LimitUnderTest

_LONGEST_NAME: Final = 200
_CAUSES: Final = {BUSY: "a shortage of capacity", BLOCKED: "a block"}
_OTHERS: Final = {
    text: cause for (kind, _, title), cause in _CAUSES.items() for text in (kind, title)
}
"""Causes of denials that are not limits, by `error` or by the title of problem details."""

_REMAINING: Final = re.compile(r'"((?:[^"\\]|\\.)*)";r=([0-9]{1,15})')
_ITEM: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_SECONDS: Final = re.compile("[0-9]{1,15}")


class Reply(NamedTuple):
    """The part of a response that matters here; the names in *headers* may be in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Read(NamedTuple):
    """The result of a request. *by* is what else denied it, or why it failed."""

    result: Result
    by: str = ""


class AnswerReader:
    """A reader of responses to requests that *tested* limits.

    *allowed* are statuses besides 200 to 299 of allowed requests.
    """

    def __init__(self, tested: LimitUnderTest, *, allowed: frozenset[int] = frozenset()) -> None:
        self._tested = tested
        self._allowed = allowed
        self._quota = min(limit.quota for limit in tested.limits)
        self._has_limits = lru_cache(maxsize=100)(self._has_tested_limits)

    def read(self, reply: Reply) -> Read:
        """Return the result of a request by its response."""
        status = reply.status
        if 200 <= status < 300 or status in self._allowed:
            return Read(Result.ALLOWED)
        if status in (429, 503):
            return self._denied(reply)
        return Read(Result.FAILED, f"status {status}")

    def _denied(self, reply: Reply) -> Read:
        content = _content(reply.body)
        kind, name = str(content.get("error") or content.get("title")), content.get("limit")
        if kind in (OUTAGE[0], OUTAGE[2]):
            return Read(Result.FAILED, f"status {reply.status}: {OUTAGE[0]}")
        cause = _OTHERS.get(kind)
        if cause is not None:
            return Read(Result.ELSEWHERE, f"{cause} ({clipped(str(name))})" if name else cause)
        if reply.status == 503:  # of the app itself
            return Read(Result.FAILED, "status 503")
        if not isinstance(name, str):
            return Read(Result.DENIED)
        rule_id, policy = self._tested.rule_id, reply.headers.get("RateLimit-Policy", "")
        if self._has_limits(name, policy) if rule_id is None else name == rule_id:
            return Read(Result.DENIED)
        policies = "; ".join(sorted(_policies(name, policy)))
        return Read(Result.ELSEWHERE, f"the rule {clipped(policies or name, _LONGEST_NAME)}")

    def _has_tested_limits(self, name: str, policy: str) -> bool:
        """Return True if the rule *name* has the tested limits, as far as *policy* says."""
        policies = _policies(name, policy)
        if not policies:
            return True
        limits = enumerate(self._tested.limits, 1)
        names = ((name if place == 1 else f"{name}/{place}", limit) for place, limit in limits)
        return policies == {policy_item(named, limit) for named, limit in names}

    @property
    def cost(self) -> int:
        """The cost of a request."""
        return self._tested.cost

    def used(self, headers: Mapping[str, str]) -> int:
        """Return the used part of the limit by *headers*; 0 if unknown."""
        left = self._remaining(headers)
        return 0 if left is None else max(0, self._quota - left)

    def _remaining(self, headers: Mapping[str, str]) -> int | None:
        """Return what remains of the limit; None if there are several, or it is unknown."""
        if len(self._tested.limits) > 1:
            return None
        if self._tested.rule_id is not None:
            left = dict(_REMAINING.findall(headers.get("RateLimit", "")))
            if self._tested.rule_id in left:
                return int(left[self._tested.rule_id])
        if headers.get("X-RateLimit-Limit", "") == str(self._quota):
            value = headers.get("X-RateLimit-Remaining", "").strip()
            return int(value) if _SECONDS.fullmatch(value) else None
        return None


def _policies(name: str, policy: str) -> set[str]:
    """Return the items of `RateLimit-Policy` on the rule *name*, one for each limit."""
    items = {item.strip() for item in _ITEM.findall(policy)}
    return {item for item in items if item.startswith((f'"{name}";', f'"{name}/'))}


def retry_after_fault(headers: Mapping[str, str]) -> str | None:
    """Return the fault of the `Retry-After` of a denial: missing, bad (0, or no number); else None.

    A date is valid too.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return "missing"
    if _SECONDS.fullmatch(value):
        return None if int(value) else "bad"
    return None if value.endswith("GMT") else "bad"


def _content(body: bytes) -> dict[str, object]:
    """Return the JSON object in *body*; an empty one if there is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
