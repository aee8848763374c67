"""Who asks in a workload, and for what: callers that a policy tells apart, requests that its rules
are for."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from headgate.engine import Engine
from headgate.errors import OptionError
from headgate.simulator.traffic import Asked

if TYPE_CHECKING:
    from headgate.rules.model import Policy, Rule
    from headgate.simulator.traffic import Headers
    from headgate.simulator.workloads.options import Options

    Kind = tuple[str, str, Headers]
    """Method, path, and headers that all callers send with it."""

_WHO: Final = {"api_key": "key", "user_id": "user", "tenant": "tenant"}
_BENCHMARKS: Final = int(IPv4Address("198.18.0.0"))  # RFC 2544: nobody has these addresses
_DOCUMENTATION: Final = int(IPv6Address("2001:db8::1"))
_MOST_IPV4: Final = 1 << 17


class Callers:
    """The callers of a workload under *policy*: each has its own address, key, user and tenant.

    They ask for what the rules are for, a rule after another, unless *options* say what. Raises
    `OptionError` if no rule is for that.
    """

    def __init__(self, policy: Policy, options: Options, *, count: int) -> None:
        self.count = count
        self._policy = policy
        self._made: dict[tuple[int, int], Asked] = {}
        self.kinds = _kinds(policy, options)
        engine = Engine(policy)
        self.kinds = [
            kind for kind in self.kinds if engine.matching(_made(kind, 0, policy).request())
        ]
        if not self.kinds:
            raise OptionError(
                "no rule of the policy is for such requests: say what is asked with a path "
                "and headers that a rule is for"
            )

    def ask(self, caller: int, kind: int) -> Asked:
        """What the caller with the number *caller* asks; the *kind* of requests goes round."""
        place = caller, kind % len(self.kinds)
        asked = self._made.get(place)
        if asked is None:
            asked = self._made[place] = _made(self.kinds[place[1]], caller, self._policy)
        return asked


def _made(kind: Kind, caller: int, policy: Policy) -> Asked:
    method, path, fixed = kind
    said = {name for name, _ in fixed}
    own = [
        (source.header, f"{_WHO[name]}-{caller}")
        for name, source in policy.identity.sources.items()
        if name in _WHO and source.header is not None and source.header not in said
    ]
    return Asked(method, path, (*fixed, *own), address_of(caller))


def address_of(caller: int) -> str:
    """The address of the caller with the number *caller*."""
    if caller < _MOST_IPV4:
        return str(IPv4Address(_BENCHMARKS + caller))
    return str(IPv6Address(_DOCUMENTATION + (caller << 64)))


def _kinds(policy: Policy, options: Options) -> list[Kind]:
    if options.path is not None or options.headers:
        path = options.path or "/"
        return [(options.method or "GET", path, options.headers)]
    rules = [rule for rule in policy.rules if rule.mode != "off"]
    kinds = [kind for rule in rules for kind in _kinds_of(rule, policy, options)]
    return list(dict.fromkeys(kinds))


def _kinds_of(rule: Rule, policy: Policy, options: Options) -> list[Kind]:
    """A request that *rule* is for; one for each tier, if its limits differ by tier."""
    match = rule.match
    method = options.method or (match.methods[0] if match.methods else "GET")
    path = _path_of(match.endpoints[0]) if match.endpoints else "/"
    headers = [(name, values[0] if values else "x") for name, values in match.headers]
    headers += [
        ("cookie", f"{name}={values[0] if values else 'x'}") for name, values in match.cookies
    ]
    if match.hosts:
        headers.append(("host", match.hosts[0].replace("*", "www")))
    tier_header = policy.identity.sources["tier"].header
    tiers = match.tiers or tuple(tier for tier in rule.limits if tier is not None)
    if not tiers or tier_header is None:
        return [(method, path, tuple(headers))]
    return [(method, path, (*headers, (tier_header, tier))) for tier in tiers]


def _path_of(pattern: str) -> str:
    """A path that *pattern* matches."""
    return pattern.replace("**", "a/b").replace("*", "a")
