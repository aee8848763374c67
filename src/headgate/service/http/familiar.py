"""Requests that were asked about before, and what is asked of the store about them.

Busy callers ask for the same over and over. What the rules make of a request depends on its method,
path and peer, and on the headers that the policy looks at or that gateways describe requests by; so
for equal ones the plan is the same. It is kept as long as the policy and the pressure are, unless
something in it belongs to one request alone, or to a time: places, holds, marks of retries,
overrides. The same goes for requests that are described in JSON, by their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.engine.interest import headers_of_interest
from headgate.engine.softening import FULL
from headgate.service.http.original import FORWARDED_FOR, SAID_BY_GATEWAYS
from headgate.service.remembered import LARGEST, MOST_BYTES, Remembered, size_of

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.engine import Engine, Plan
    from headgate.service.http.replies import Scope

    Lines = tuple[tuple[bytes, bytes], ...]
    Key = tuple[str, bytes, bytes, str, Lines]
    Known = tuple[Plan, int]
    """The plan, and the status of a refusal."""

_ALWAYS: Final = SAID_BY_GATEWAYS | {FORWARDED_FOR, b"host"}
_ENTRY_BYTES: Final = 1_000
"""What a plan and its key take without rules and texts."""

_LINE_BYTES: Final = 200
"""What a header line takes besides its text."""


class Familiar:
    """What is known under the policy of *engine*; another policy has another one.

    Pressure multiplies limits by *factor*, so there is another one, too, when that has changed.
    """

    __slots__ = ("_bodies", "_is_usable", "_known", "_names", "engine", "factor")

    def __init__(self, engine: Engine, factor: Fraction = FULL) -> None:
        self.engine = engine
        self.factor = factor
        names = headers_of_interest(engine.policy)
        self._names = _ALWAYS | {name.encode("latin-1", "replace") for name in names}
        self._is_usable = not (engine.policy.overrides or engine.has_slots)
        self._known: Remembered[Key, Known] = Remembered(MOST_BYTES // 2)
        self._bodies: Remembered[bytes, Plan] = Remembered(MOST_BYTES // 2)

    def key_of(self, scope: Scope, rest: bytes, peer: str) -> Key:
        """What the plan for the request in *scope* depends on."""
        names = self._names
        lines = tuple([line for line in scope["headers"] if line[0] in names])
        # The query is the gateway's own where headers describe the request, else the client's.
        query = b"" if rest else scope.get("query_string", b"")
        return scope["method"], rest, query, peer, lines

    def get(self, key: Key) -> Known | None:
        """The plan for such a request, if it is known."""
        return self._known.get(key)

    def keep(self, key: Key, plan: Plan, denied_as: int) -> None:
        """Know the *plan* from now on, if it is good for all such requests."""
        if not (self._is_usable and plan.is_plain):
            return
        text = _text(key)
        if len(text) <= LARGEST:
            base = _ENTRY_BYTES + _LINE_BYTES * len(key[-1])
            size = size_of(text, checks=_checks(plan), base=base)
            self._known.keep(key, (plan, denied_as), size)

    def described(self, body: bytes) -> Plan | None:
        """The plan for the request that *body* describes, if it is known."""
        return self._bodies.get(body)

    def keep_described(self, body: bytes, plan: Plan) -> None:
        """As `keep`."""
        if self._is_usable and plan.is_plain and len(body) <= LARGEST:
            self._bodies.keep(body, plan, size_of(body, checks=_checks(plan), base=_ENTRY_BYTES))


def _text(key: Key) -> bytes:
    """All that *key* consists of; names of headers are those that the policy has."""
    method, rest, query, peer, lines = key
    texts = [method.encode("utf-8", "surrogatepass"), rest, query, peer.encode()]
    return b"".join(texts + [value for _, value in lines])


def _checks(plan: Plan) -> int:
    return sum([len(one.checks) for one in plan.rules])
