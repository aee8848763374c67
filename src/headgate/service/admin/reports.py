"""Calls that tell how things stand, and who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.engine.plan import groups_of
from headgate.rules.reading.instants import instant_text
from headgate.service.admin.telling import change_data, problems_data
from headgate.service.http.replies import Reply, json_reply
from headgate.stores.leased import AsyncLeasedStore
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
        store = self._core.engine.runner.store
        factor = float(self._core.engine.in_force.scale.factor)
        if not isinstance(store, AsyncLeasedStore):
            return json_reply({"hot_keys": [], "bounds": [], "breaker": None, "factor": factor})
        rules = self._rules_by_group()
        guard = guard_of(store)
        hot = [
            {
                "rule_id": rules.get(one.group),
                "key": one.key,
                "per_second": round(one.per_second, 1),
                "at_most": round(one.per_second + one.error, 1),
            }
            for one in store.hot_keys(count)
        ]
        bounds = [
            {"rule_id": rules.get(one.group), "holders": one.holders, "units": one.bound}
            for one in store.bounds()
        ]
        breaker = None if guard is None else "open" if guard.is_open else "closed"
        found = {"hot_keys": hot, "bounds": bounds, "breaker": breaker, "factor": factor}
        return json_reply(found)

    def _rules_by_group(self) -> dict[str, str]:
        policy, namespace = self._core.engine.in_force.policy, self._core.namespace
        return {
            group: rule.id
            for rule in policy.rules
            for limits in rule.limits.values()
            for group in groups_of(namespace, rule.id, len(limits))
        }

    async def audit(self, call: Call) -> Reply:
        """GET /audit: the newest first."""
        query = call.query("limit")
        limit = call.number(query, "limit", 100, MOST_LISTED)
        return json_reply({"events": list(await self._audit.latest(limit))})
