"""What clients are told by limits that Envoy keeps: what is known of a refusal beforehand.

Figures are not: how much is left, and when exactly there will be more. `Retry-After` of a local
limit is Envoy's own, exact to the second; of a quota it is the time in which a unit of the whole
limit comes back. Responses that are not refused carry no headers of such limits.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from headgate.decisions import Concluded
from headgate.gateway.envoy.buckets import wait_ns
from headgate.responses.answer import Answer, Part, Told
from headgate.responses.bodies import JSON, body_for
from headgate.responses.ratelimit_draft11 import POLICY, policy_field
from headgate.responses.rounding import seconds_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.gateway.envoy.values import Json
    from headgate.limits import Limit
    from headgate.rules.model import Rule

LIMIT_HEADER: Final = "x-headgate-limit"
"""The id of the rule that refused, in the answers of local limits."""

_NOT_KEPT: Final = ("cache-control", "no-store")


def local_headers(rule: Rule, limits: Mapping[Limit, int]) -> list[Json]:
    """The headers of what a filter of *rule* refuses.

    It has *limits*, each with its place in the stack. Of several, which are those of tiers, no one
    is named: the filter has the same headers for all.
    """
    told = [_NOT_KEPT]
    if rule.headers != "redacted":
        told.append((LIMIT_HEADER, rule.id))
    if rule.headers == "on" and len(limits) == 1:
        ((limit, place),) = limits.items()
        told.append((POLICY, _policy(rule, limit, place)))
    return [_header(name, value) for name, value in told]


def untold_headers() -> list[Json]:
    """The headers of what a filter of several rules refuses."""
    return [_header(*_NOT_KEPT)]


def quota_refusal(rule: Rule, limit: Limit, place: int) -> Json:
    """The whole answer to what a quota of *rule* refuses: by *limit*, at that *place* in the
    stack."""
    wait = wait_ns(limit, rule.cost.default)
    _, body = body_for(Answer(allowed=False, told=(_told(rule, limit, wait),)), problem=False)
    headers = [("content-type", JSON), _NOT_KEPT]
    if rule.headers != "redacted":
        headers.append(("retry-after", str(max(1, seconds_up(wait)))))
    if rule.headers == "on":
        headers.append((POLICY, _policy(rule, limit, place)))
    return {
        "http_status": {"code": "TooManyRequests"},
        "http_body": {"value": b64encode(body).decode()},
        "response_headers_to_add": [_header(name, value) for name, value in headers],
    }


def _told(rule: Rule, limit: Limit, wait: int) -> Told:
    decision = Concluded(
        "", limit, allowed=False, remaining=0, retry_after_ns=wait, reset_after_ns=limit.period_ns
    )
    return Told(rule.id, decision, rule.headers)


def _policy(rule: Rule, limit: Limit, place: int) -> str:
    name = rule.id if place == 1 else f"{rule.id}/{place}"
    return policy_field([Part(name, _told(rule, limit, limit.period_ns).decision)])


def _header(name: str, value: str) -> Json:
    return {"header": {"key": name.lower(), "value": value}}
