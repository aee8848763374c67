"""The rule to test: in words, by its id in a file, or by its id in a service that runs."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from headgate.control import PolicyFiles
from headgate.errors import OptionError
from headgate.limits import parse_limits
from headgate.loadtest.options import Aim
from headgate.policy.loader import read_policy_data
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from headgate.limits import Accuracy, Limit
    from headgate.policy.model import Policy, Rule

_PATIENCE_S: Final = 10.0
_LARGEST: Final = 16 * 1_048_576
_MOST_NAMED: Final = 10
_REMARKS: Final = {
    "quota": "gateways decide this rule by shares that they are assigned: they may admit less, and "
    "for a moment more (decide: quota)",
    "local": "each gateway decides this rule by itself, and has the whole limit (decide: local)",
}


def aim_in_words(text: str, *, cost: int | None = None, overshoot: int | None = None) -> Aim:
    """The limits that *text* says. Raises `NotationError`, or `OptionError`."""
    limits = parse_limits(text)
    return Aim(limits, cost=cost or 1, extra=(overshoot,) * len(limits) if overshoot else ())


def aim_of(
    policy: Policy,
    rule_id: str,
    *,
    tier: str | None = None,
    cost: int | None = None,
    overshoot: int | None = None,
) -> Aim:
    """What the rule *rule_id* of *policy* allows callers of *tier*.

    *cost* and *overshoot* go over what the rule says. Raises `OptionError` if there is nothing to
    test, or something has to be said that the rule does not.
    """
    rule = next((one for one in policy.rules if one.id == rule_id), None)
    if rule is None:
        known = [one.id for one in policy.rules]
        more = ", ..." if len(known) > _MOST_NAMED else ""
        listed = ", ".join(known[:_MOST_NAMED]) + more
        raise OptionError(f"there is no rule {rule_id!r}; expected one of {listed or 'none'}")
    _check(rule)
    limits = _limits(rule, tier)
    extra = [overshoot or 0] * len(limits)
    if overshoot is None:
        extra = [_overshoot(rule, limit) for limit in limits]
    cost = _cost(rule) if cost is None else cost
    return Aim(limits, rule.id, cost, tuple(extra), _REMARKS.get(rule.decide or "", ""))


def policy_in(path: str) -> Policy:
    """The policy in the file or directory *path*. Raises `OptionError` with what is wrong."""
    try:
        return PolicyFiles(path).load().policy
    except PolicyError as error:
        raise OptionError(f"the rules cannot be read: {_joined(error)}") from error


def policy_of_service(url: str, token: str) -> Policy:
    """The policy in force at the service at *url*, whose admin API takes *token*.

    Raises `OptionError` if it does not say.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not (url.isascii() and url.isprintable()) or " " in url:
        raise OptionError("the admin URL cannot be asked; expected http://127.0.0.1:8090")
    if not (token.isascii() and token.isprintable()):
        raise OptionError("the admin token has characters in it that no token has")
    request = Request(  # noqa: S310 - http or https, as was seen
        f"{url.rstrip('/')}/admin/v1/policy", headers={"Authorization": f"Bearer {token}"}
    )
    content = _answer(request)
    try:
        return read_policy_data(content["policy"], where="the service's policy")
    except PolicyError as error:
        raise OptionError(f"the service's rules cannot be read: {_joined(error)}") from error
    except (KeyError, TypeError) as error:
        raise OptionError("what answers at the admin URL is no Headgate service") from error


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: the token is for this server alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _answer(request: Request) -> Any:
    opener = build_opener(_Stay, ProxyHandler({}))
    try:
        with opener.open(request, timeout=_PATIENCE_S) as response:
            return json.loads(response.read(_LARGEST))
    except HTTPError as error:
        hint = ": is the token right?" if error.code in (401, 403) else ""
        error.close()
        raise OptionError(f"the admin API answers with status {error.code}{hint}") from error
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise OptionError(f"the admin API cannot be asked: {reason}") from error
    except ValueError as error:
        raise OptionError("what answers at the admin URL is no Headgate service") from error


def _check(rule: Rule) -> None:
    if rule.mode != "enforce":
        told = "refuses nothing: it is in shadow" if rule.mode == "shadow" else "is switched off"
        raise OptionError(f"the rule {rule.id} {told}; expected one with mode: enforce")
    if rule.fair is not None:
        raise OptionError(
            f"the rule {rule.id} lets requests take turns, which a load test does not measure; "
            "expected one with a limit"
        )


def _limits(rule: Rule, tier: str | None) -> tuple[Limit, ...]:
    limits = rule.limits_for(tier)
    if limits:
        return limits
    tiers = ", ".join(name for name in rule.limits if name is not None)
    if tier is None:
        raise OptionError(f"the rule {rule.id} has limits by tier; expected --tier: {tiers}")
    raise OptionError(
        f"the rule {rule.id} does not limit the tier {tier!r}; expected one of {tiers}"
    )


def _cost(rule: Rule) -> int:
    cost = rule.cost
    if cost.header is not None or cost.endpoints or cost.after is not None:
        raise OptionError(
            f"what a request costs under the rule {rule.id} depends on the request; "
            "expected --cost N, what one of this test costs"
        )
    return cost.default


def _overshoot(rule: Rule, limit: Limit) -> int:
    accuracy: Accuracy = rule.accuracy
    if accuracy.is_exact:
        return 0
    cap = accuracy.cap(limit.quota)
    if cap is None:
        raise OptionError(
            f"how far the rule {rule.id} may overshoot depends on how many nodes there are; "
            "expected --overshoot N, in units"
        )
    return cap


def _joined(error: PolicyError) -> str:
    return "; ".join(str(problem) for problem in error.problems[:3])
