"""Calls that tell how things stand, and who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.reading.instants import instant_text
from headgate.service.admin.telling import change_data, problems_data
from headgate.service.http.replies import Reply, json_reply
from headgate.service.live.standing import bounds, hot_keys
from headgate.stores.opening import guard_of

if TYPE_CHECKING:
    from headgate.control.audit import Audit
    from headgate.control.feed import PolicyFeed
    from headgate.service.admin.call import Call
    from headgate.service.core import Core

MOST_LISTED: Final = 1_000


class ReportCalls:
    """What there is to know."""

    def __init__(self, core: Core, feed: PolicyFeed, audit: Audit) -> None:
        self._core = core
        self._feed = feed
        self._audit = audit

    async def status(self, call: Call) -> Reply:
        """GET /status: of the worker that answers."""
        call.query()
        state = self._feed.state
        policy = self._core.engine.in_force.policy
        loaded = state.loaded_at_ns
        content = {
            "caller": {"name": call.caller.name, "role": call.caller.role},
            "place": self._feed.place,
            "revision": state.revision,
            "change": None
            if state.change is None or state.revision is None
            else change_data(state.revision, state.change),
            "loaded_at": None if loaded is None else instant_text(loaded),
            "current": state.is_current,
            "stale": state.is_stale,
            "trouble": state.trouble,
            "refused_revision": state.refused,
            "problems": problems_data(state.problems or ()),
            "warnings": problems_data(state.warnings),
            "failures": state.failures,
            "rules": len(policy.rules),
            "overrides": len(policy.overrides),
            "not_ready": list(self._core.not_ready()),
        }
        return json_reply(content)

    async def pressure(self, call: Call) -> Reply:
        """GET /pressure: what this worker asks most of, how far limits may be overshot, and what
        they are multiplied by while the fleet is under pressure."""
        query = call.query("limit")
        count = max(1, call.number(query, "limit", 20, MOST_LISTED))
        hot = [
            {"rule_id": rule, "key": key, "per_second": least, "at_most": most}
            for rule, key, least, most in hot_keys(self._core, count)
        ]
        may_overshoot = [
            {"rule_id": rule, "holders": holders, "units": units}
            for rule, holders, units in bounds(self._core)
        ]
        guard = guard_of(self._core.engine.runner.store)
        found = {
            "hot_keys": hot,
            "bounds": may_overshoot,
            "breaker": None if guard is None else "open" if guard.is_open else "closed",
            "factor": float(self._core.engine.in_force.scale.factor),
        }
        return json_reply(found)

    async def audit(self, call: Call) -> Reply:
        """GET /audit: the newest first."""
        query = call.query("limit")
        limit = call.number(query, "limit", 100, MOST_LISTED)
        return json_reply({"events": list(await self._audit.latest(limit))})
