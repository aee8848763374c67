"""The limiters that keep the pace: plain ones, but without a store they do not wait for it.

`acquire` asks again after a second when `fail_closed` has refused, which is right for who can wait
until the store is back. A call that is to be sent or not is better told at once.
"""

from __future__ import annotations

from headgate.aio import AsyncRateLimiter
from headgate.decisions import Concluded, Decision
from headgate.enforcement.outgoing.refusal import cause_of
from headgate.limiter import RateLimiter


class TurnLimiter(RateLimiter):
    """A `RateLimiter` whose `acquire` refuses at once if the store cannot be reached."""

    def hit(self, key: str, cost: int = 1) -> Decision:
        return _final(super().hit(key, cost))

    def _hit_within(self, key: str, cost: int, within_ns: int | None) -> Decision:
        return _final(super()._hit_within(key, cost, within_ns))


class AsyncTurnLimiter(AsyncRateLimiter):
    """The same for an event loop."""

    async def hit(self, key: str, cost: int = 1) -> Decision:
        return _final(await super().hit(key, cost))

    async def _hit_within(self, key: str, cost: int, within_ns: int | None) -> Decision:
        return _final(await super()._hit_within(key, cost, within_ns))


def _final(decision: Decision) -> Decision:
    """*decision*, but there is no telling when it would be another one if the store is gone."""
    if decision.allowed or cause_of(decision) != "store":
        return decision
    return Concluded(
        decision.key,
        decision.limit,
        allowed=False,
        remaining=0,
        retry_after_ns=None,
        reset_after_ns=decision.reset_after_ns,
        source=decision.source,
    )
