"""A counter shared by gateways of this replica, and the stores that keep ledgers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.service.rlqs.allocation import Allocation, GatewayState, allocate
from headgate.service.rlqs.ledger import NEVER, Ledger
from headgate.service.rlqs.rates import nearest_bucket
from headgate.units import SECOND

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.service.rlqs.gateway import Share
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rlqs.rates import Allowance


UNKNOWN: Final = -1
"""In place of a time: what the gateway has is not what the ledger says."""


class SharedCounter:
    """The shares of gateways of this replica in the ledger *name*, by share name.

    *whole* is the limit to divide until a share provides another.
    """

    def __init__(
        self, name: str, whole: Allowance, ledgers: LedgerStore, options: RlqsOptions
    ) -> None:
        self.name = name
        self._whole = whole
        self.shares: dict[str, Share] = {}
        self.due_ns = NEVER
        self.usage = 0
        """Usage of all gateways, in millionths of a request per second."""
        self.elsewhere = 0
        """The most that is charged for gateways of other replicas, in the same unit."""
        self._ledgers = ledgers
        self._options = options
        self._gone: set[str] = set()
        self._abandoned: set[str] = set()
        self._lock = asyncio.Lock()

    @property
    def is_over(self) -> bool:
        """True if no gateway of this replica has a share and the ledger says so."""
        return not (self.shares or self._gone or self._abandoned)

    def join(self, share: Share) -> None:
        share.made_ns = NEVER
        self.shares[share.name] = share
        self.due_ns = NEVER

    def leave(self, share: Share, *, is_replaced: bool) -> None:
        """Remove *share*. Its assignment ends with its ttl, or at once if it *is_replaced*.

        A share that the ledger does not know is forgotten: their number is unbounded while the
        ledger store is out of reach.
        """
        if self.shares.pop(share.name, None) is not None and share.made_ns > NEVER:
            (self._abandoned if is_replaced else self._gone).add(share.name)
            self.due_ns = NEVER

    async def reallocate(self, now_ns: int, left: Fraction) -> bool:
        """Divide the fraction *left* of the limit and send the assignments.

        Returns false if the ledger store failed.
        """
        async with self._lock:
            gone, abandoned = frozenset(self._gone), frozenset(self._abandoned)
            try:
                allocation = await self._allocate(left, gone, abandoned)
            except StoreError:
                self.use_fallback(now_ns)
                return False
            self._gone -= gone
            self._abandoned -= abandoned
            self.due_ns = now_ns + allocation.due_ns - allocation.ledger.at_ns
            claims = allocation.ledger.claims
            self.usage = sum(one.usage for one in claims.values())
            self.elsewhere = sum(
                one.charged for name, one in claims.items() if name not in self.shares
            )
            for name, token_bucket in allocation.assignments.items():
                share = self.shares.get(name)
                if share is None:
                    self._gone.add(name)  # it left in the meantime
                else:
                    share.made_ns = claims[name].made_ns
                    share.assign(token_bucket)
            return True

    async def _allocate(
        self, left: Fraction, gone: frozenset[str], abandoned: frozenset[str]
    ) -> Allocation:
        allowance = self._allowance()
        states = {
            name: GatewayState(share.estimate.demand, share.estimate.usage, share.made_ns)
            for name, share in self.shares.items()
        }

        def step(ledger: Ledger | None, now_ns: int, opens_ns: int) -> Allocation:
            return allocate(
                ledger,
                now_ns,
                allowance=allowance,
                left=left,
                states=states,
                options=self._options,
                gone=gone,
                abandoned=abandoned,
                opens_ns=opens_ns,
            )

        return await self._ledgers.update(self.name, step)

    def _allowance(self) -> Allowance:
        if self.shares:
            self._whole = next(iter(self.shares.values())).limits.bindings[0].allowance
        return self._whole

    def use_fallback(self, now_ns: int) -> None:
        """Apply the failure mode of each rule while the ledger store fails.

        With `fail_closed` nothing is allowed after the current assignment ends. Otherwise a gateway
        keeps its assignment, and one without gets the whole limit.
        """
        self.due_ns = now_ns + SECOND
        half_ns = self._options.ttl_ns // 2
        for share in self.shares.values():
            if share.assigned_ns != NEVER and now_ns - share.assigned_ns < half_ns:
                continue
            binding = share.limits.bindings[0]
            if binding.rule.on_failure.mode == "fail_closed":
                share.made_ns = UNKNOWN
                share.assign(None)
                continue
            if share.assigned is None:
                share.made_ns = UNKNOWN
                whole = binding.allowance
                share.assign(nearest_bucket(whole.rate, whole.burst))
                continue
            share.assign(share.assigned)


# Ledger stores: the port, and the store of a single replica.


Step = Callable[[Ledger | None, int, int], Allocation]
"""One allocation: from a ledger (or None), the time, and its `opens_ns`.

May be called several times for one update, so it must not have side effects.
"""

_SWEEP: Final = 1_024


class LedgerStore(ABC):
    """Ledgers by name, each updated atomically."""

    @abstractmethod
    async def update(self, name: str, step: Step) -> Allocation:
        """Update the ledger *name* by *step* and return the allocation, which is then in force.

        Raises `StoreError` if the update failed or its outcome is unknown.
        """

    def begin_recovery(self) -> None:  # noqa: B027 (not all stores lose ledgers)
        """Expect assignments that were made before this store was opened."""

    async def aclose(self) -> None:  # noqa: B027 (not all stores hold resources)
        """Release resources."""


class MemoryLedgerStore(LedgerStore):
    """The ledgers of a single replica, on *clock*.

    A new process does not know earlier assignments. If a gateway reports usage from before, others
    may be in force too: until they must have ended, only a fraction of each limit is assigned (see
    `RlqsOptions.restart_share`).
    """

    def __init__(self, clock: Clock, options: RlqsOptions) -> None:
        self._clock = clock
        self._opens_ns = clock() + options.ttl_ns + options.delivery_ns
        self._is_recovering = False
        self._ledgers: dict[str, Allocation] = {}
        self._updates = 0

    async def update(self, name: str, step: Step) -> Allocation:
        now_ns = self._clock()
        self._updates += 1
        if self._updates % _SWEEP == 0:
            self._forget(now_ns)
        before = self._ledgers.get(name)
        opens_ns = self._opens_ns if self._is_recovering and now_ns < self._opens_ns else NEVER
        allocation = step(None if before is None else before.ledger, now_ns, opens_ns)
        self._ledgers[name] = allocation
        return allocation

    def begin_recovery(self) -> None:
        self._is_recovering = True

    def _forget(self, now_ns: int) -> None:
        self._ledgers = {
            name: allocation
            for name, allocation in self._ledgers.items()
            if allocation.expires_ns > now_ns
        }
