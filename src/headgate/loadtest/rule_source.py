"""The tested rule: a limit in the text notation, or the id of a rule in a file or a service."""

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
    "quota": "gateways decide this rule by assigned shares: they may allow less, and for a moment "
    "more (decide: quota)",
    "local": "each gateway decides this rule alone, with the whole limit (decide: local)",
}


def aim_in_words(text: str, *, cost: int | None = None, overshoot: int | None = None) -> Aim:
    """Return the limits of *text*. Raises `NotationError` or `OptionError`."""
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
    """Return the limits of the rule *rule_id* of *policy* for callers of *tier*.

    *cost* and *overshoot* override those of the rule. Raises `OptionError` if there is nothing to
    test, or an option is missing that the rule does not define.
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
    """Return the policy in the file or directory *path*. Raises `OptionError` if it is invalid."""
    try:
        return PolicyFiles(path).load().policy
    except PolicyError as error:
        raise OptionError(f"the rules cannot be read: {_joined(error)}") from error


def policy_of_service(url: str, token: str) -> Policy:
    """Return the policy of the service at *url*, by its admin API and *token*.

    Raises `OptionError` if that fails.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not (url.isascii() and url.isprintable()) or " " in url:
        raise OptionError("invalid admin URL; expected one such as http://127.0.0.1:8090")
    if not (token.isascii() and token.isprintable()):
        raise OptionError("the admin token has invalid characters")
    request = Request(  # noqa: S310 - http or https, as checked
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
        state = "is a shadow rule" if rule.mode == "shadow" else "is off"
        raise OptionError(f"the rule {rule.id} {state}; expected one with mode: enforce")
    if rule.fair is not None:
        raise OptionError(
            f"the rule {rule.id} is a fair queue, which a load test does not measure; expected one "
            "with a limit"
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
            f"the cost under the rule {rule.id} depends on the request; expected --cost N, that of "
            "a request of this test"
        )
    return cost.default


def _overshoot(rule: Rule, limit: Limit) -> int:
    accuracy: Accuracy = rule.accuracy
    if accuracy.is_exact:
        return 0
    cap = accuracy.cap(limit.quota)
    if cap is None:
        raise OptionError(
            f"the overshoot of the rule {rule.id} depends on the number of nodes; expected "
            "--overshoot N, in units"
        )
    return cap


def _joined(error: PolicyError) -> str:
    return "; ".join(str(problem) for problem in error.problems[:3])
