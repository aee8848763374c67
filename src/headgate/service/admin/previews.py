"""What is answered to a preview: what would change, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.control.differences import to_data
from headgate.control.live_counters import affected_by, judged
from headgate.errors import StoreError
from headgate.service.admin.telling import problems_data
from headgate.service.http.replies import json_reply

if TYPE_CHECKING:
    from headgate.control.live_counters import Affected, LiveCounters
    from headgate.control.preview import Preview
    from headgate.service.http.replies import Reply
    from headgate.service.shown_keys import ShowKey

Data = dict[str, Any]


class Previews:
    """Tells previews, with counters of the store if it can be looked through, whose keys are shown
    to people as *show_key* says."""

    def __init__(self, live: LiveCounters | None, show_key: ShowKey) -> None:
        self._live = live
        self._show_key = show_key

    async def reply(self, preview: Preview) -> Reply:
        """All that *preview* says. It is 200 too if the policy could not be put in force."""
        errors = [one for one in preview.problems if one.severity == "error"]
        warnings = [one for one in preview.problems if one.severity == "warning"]
        content = {
            "revision": preview.number,
            "valid": preview.is_good,
            "errors": problems_data(errors),
            "warnings": problems_data(warnings),
            "changes": to_data(preview.differences),
            "consequences": [
                {"rule_id": one.rule, "effect": one.effect, "message": one.message}
                for one in preview.consequences
            ],
            "counters": await self._counters(preview),
        }
        return json_reply(content)

    async def _counters(self, preview: Preview) -> Data:
        if self._live is None:
            return {"available": False, "reason": "the counters of this store cannot be listed"}
        try:
            look = await affected_by(preview, self._live)
        except StoreError as error:
            return {"available": False, "reason": f"the store cannot be asked ({error.reason})"}
        found = [_affected(one, self._show_key) for one in judged(look, preview)]
        return {"available": True, "affected": found, "more": look.has_more}


def _affected(one: Affected, show_key: ShowKey) -> Data:
    counter = one.counter
    return {
        "rule_id": counter.rule,
        "key": counter.key,
        "shown_key": counter.key if counter.is_digest else show_key(counter.key),
        "is_digest": counter.is_digest,
        "limit": counter.place,
        "used": counter.used,
        "refused_now": one.was_refused,
        "refused_after": one.would_be_refused,
    }
