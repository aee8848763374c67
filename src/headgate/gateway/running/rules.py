"""The policy in force, as Envoy's configuration: made anew at every change of the rules."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headgate.control.feed import PolicyFeed
from headgate.gateway.running.logs import tell
from headgate.rules.problems import PolicyError

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control.storage import PolicyStorage
    from headgate.gateway.envoy.values import Decided
    from headgate.rules.model import Policy

_UNHEARD: Final = logging.getLogger("headgate.gateway.rules")
"""The feed's own words, of which only mistakes are told: the service says the same of its feed."""


class RulesInForce:
    """Follows *storage*. *policy* is the newest that is good; *changed* is set for every new one.

    Rules that *may_come_later* are no reason not to start.
    """

    def __init__(
        self, storage: PolicyStorage, *, keep: Path | None = None, may_come_later: bool = False
    ) -> None:
        _UNHEARD.setLevel(logging.CRITICAL)
        self._storage = storage
        self._may_come_later = may_come_later
        self._feed = PolicyFeed(storage, self._apply, keep=keep, log=_UNHEARD)
        self.policy: Policy | None = None
        self.changed = asyncio.Event()

    async def start(self) -> None:
        """Read them. Raises `PolicyError` if they are no policy; waits for what may come later."""
        await self._feed.start()
        state = self._feed.state
        if self.policy is None and state.problems and not self._may_come_later:
            raise PolicyError(state.problems)
        if self.policy is None:
            reasons = "; ".join(state.not_ready)
            tell(f"waiting for the rules: {reasons}", level=logging.WARNING)
            _UNHEARD.setLevel(logging.NOTSET)  # nobody else says why they do not come
            await self.changed.wait()
            _UNHEARD.setLevel(logging.CRITICAL)
        self.changed.clear()

    def reread(self) -> None:
        """Look at them again, now."""
        self._feed.check_soon()

    async def aclose(self) -> None:
        """Follow them no longer."""
        await self._feed.aclose()
        await self._storage.aclose()

    def _apply(self, policy: Policy) -> int:
        self.policy = policy
        self.changed.set()
        return policy.revision


class Ways:
    """Says how rules are decided where that is not as they ask for: once, until it changes."""

    def __init__(self) -> None:
        self._told: dict[str, Decided] = {}

    def tell(self, decided: tuple[Decided, ...]) -> None:
        """Say what is new in *decided*."""
        otherwise = {one.rule: one for one in decided if one.why}
        for rule, one in otherwise.items():
            if self._told.get(rule) != one:
                told = f"rule {rule}: decided {one.decide}, not {one.asked}: {one.why}"
                tell(told, rule=rule, decide=one.decide, asked=one.asked, why=one.why)
        self._told = otherwise
