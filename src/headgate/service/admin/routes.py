"""Which path and method of the admin API leads where, and who may go there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.service.admin.call import Handler
    from headgate.service.admin.debugging import DebugCalls
    from headgate.service.admin.explaining import ExplainCalls
    from headgate.service.admin.keys import KeyCalls
    from headgate.service.admin.live import LiveCalls
    from headgate.service.admin.policies import PolicyCalls
    from headgate.service.admin.reports import ReportCalls
    from headgate.service.admin.rules import RuleCalls
    from headgate.service.admin.tokens import Role

PREFIX: Final = "/admin/v1"
_PARTS: Final = {"{rule_id}": r"(?P<rule_id>[^/:]{1,200})", "{number}": r"(?P<number>[0-9]{1,15})"}


class Route(NamedTuple):
    """What one method of one path does, and whom it is for."""

    role: Role
    handler: Handler


class Found(NamedTuple):
    """The routes of a path by method, and what the path says."""

    methods: Mapping[str, Route]
    parts: Mapping[str, str]


class Routes:
    """All of them."""

    def __init__(
        self,
        rules: RuleCalls,
        policies: PolicyCalls,
        keys: KeyCalls,
        reports: ReportCalls,
        explaining: ExplainCalls,
        debugging: DebugCalls,
        live: LiveCalls,
    ) -> None:
        table = {
            "/rules": {"GET": Route("read", rules.listed)},
            "/rules/{rule_id}": {
                "GET": Route("read", rules.got),
                "PUT": Route("write", rules.put),
                "DELETE": Route("write", rules.deleted),
            },
            "/rules/{rule_id}:disable": {"POST": Route("write", rules.switched_off)},
            "/rules/{rule_id}:enable": {"POST": Route("write", rules.switched_on)},
            "/rules/{rule_id}/candidate": {"POST": Route("write", rules.tried)},
            "/rules/{rule_id}/candidate:preview": {"POST": Route("read", rules.trial_previewed)},
            "/rules/{rule_id}/adopt": {"POST": Route("write", rules.adopted)},
            "/rules/{rule_id}/adopt:preview": {"POST": Route("read", rules.adoption_previewed)},
            "/rules:preview": {"POST": Route("read", rules.previewed)},
            "/policy": {"GET": Route("read", policies.got), "PUT": Route("write", policies.put)},
            "/policy:preview": {"POST": Route("read", policies.previewed)},
            "/history": {"GET": Route("read", policies.history)},
            "/history/{number}": {"GET": Route("read", policies.revision)},
            "/rollback": {"POST": Route("write", policies.rolled_back)},
            "/keys": {"GET": Route("read", keys.listed)},
            "/keys:lookup": {"POST": Route("read", keys.looked_up)},
            "/keys:reset": {"POST": Route("write", keys.reset)},
            "/keys:grant": {"POST": Route("write", keys.granted)},
            "/keys:block": {"POST": Route("write", keys.blocked)},
            "/keys:unblock": {"POST": Route("write", keys.unblocked)},
            "/overrides": {
                "GET": Route("read", keys.overrides),
                "DELETE": Route("write", keys.override_ended),
            },
            "/live": {"GET": Route("read", live.told)},
            "/status": {"GET": Route("read", reports.status)},
            "/pressure": {"GET": Route("read", reports.pressure)},
            "/audit": {"GET": Route("read", reports.audit)},
            "/explain": {"POST": Route("read", explaining.explained)},
            "/debug-tokens": {"POST": Route("write", debugging.made)},
        }
        self.table: Final[Mapping[str, Mapping[str, Route]]] = table
        self._patterns = [(_compiled(path), methods) for path, methods in table.items()]

    def find(self, path: str) -> Found | None:
        """The routes of *path*; None if there are none."""
        if not path.startswith(PREFIX):
            return None
        rest = path.removeprefix(PREFIX)
        for pattern, methods in self._patterns:
            found = pattern.fullmatch(rest)
            if found is not None:
                return Found(methods, found.groupdict())
        return None


def _compiled(path: str) -> re.Pattern[str]:
    pattern = re.escape(path)
    for name, part in _PARTS.items():
        pattern = pattern.replace(re.escape(name), part)
    return re.compile(pattern)
