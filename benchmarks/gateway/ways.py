"""The ways to decide that are measured, and the policies that they decide by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.policy.model import Decide

NEVER_REACHED: Final = "100000000/s"
SOON_REACHED: Final = "3/hour"

_ONE_RULE: Final = """\
version: 1
rules:
  - {{id: per-key, match: {{endpoint: "/api/**"}}, key_by: api_key, limit: {limit}}}
"""
DESIGN: Final = """
version: 1
identity:
  api_key: {header: x-api-key}
  user_id: {header: x-user-id}
  tenant:  {header: x-tenant-id}
  tier:    {header: x-tier, default: free}
  ip:      {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: login-brute-force
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
    on_store_failure: fail_closed
  - id: free-tier-default
    match: {endpoint: /api/v1/*, tier: free}
    algorithm: token_bucket
    capacity: 1000000000
    refill_rate_per_sec: 16700000
    key_by: api_key
    on_store_failure: fail_open
  - id: per-tier
    match: {endpoint: /api/**}
    key_by: [tenant, endpoint]
    limits: {free: 100000000/s, paid: "1000000000/s burst 2000000000", enterprise: 1000000000/s}
    cost: {default: 1, endpoints: {"POST /export/pdf": 10}}
    mode: shadow
"""
"""An example with large numbers: two of its rules are for the request, one of them
in shadow."""
NO_RULES: Final = "version: 1\nrules: []\n"


@dataclass(frozen=True, slots=True)
class Way:
    """How a gateway decides, in one row of the tables.

    *decide* None is a gateway without rules. *asks* is what it asks about each request, if it is
    exact, and *over* is what that goes over. *is_by_hand*: not as the gateway makes the
    configuration, but with nothing in it that Envoy does not need.
    """

    name: str
    decide: Decide | None = "exact"
    is_example: bool = False
    asks: str = "rls"
    over: str = "unix"
    is_by_hand: bool = False

    @property
    def service(self) -> str:
        """Which service it asks: one for each policy, and for quotas one that does nothing else."""
        if self.is_example:
            return "example"
        return "quota" if self.decide == "quota" else "one rule"

    @property
    def tried(self) -> tuple[str, str]:
        """The method and path of requests that are refused under a limit that is soon reached."""
        return ("POST", "/login") if self.is_example else ("GET", MEASURED)


def policy(service: str, limit: str = NEVER_REACHED) -> str:
    """The policy of *service*."""
    return DESIGN if service == "example" else _ONE_RULE.format(limit=limit)


MEASURED: Final = "/api/v1/items"

BARE: Final = Way("no rules", None)
LOCAL: Final = Way("local", "local")
QUOTA: Final = Way("quota", "quota")
EXACT: Final = Way("exact, one rule")
EXAMPLE: Final = Way("exact, the example", is_example=True)

WAYS: Final = (
    BARE,
    LOCAL,
    QUOTA,
    EXACT,
    EXAMPLE,
    Way("exact, one rule, RLS over TCP", over="tcp"),
    Way("ext_authz, one rule, unix socket", asks="ext_authz", is_by_hand=True),
    Way("ext_authz, one rule, TCP", asks="ext_authz", over="tcp", is_by_hand=True),
)
BY_HAND: Final = (
    Way("no rules, by hand", None, is_by_hand=True),
    Way("local, by hand", "local", is_by_hand=True),
    Way("quota, by hand", "quota", is_by_hand=True),
    Way("exact, one rule, by hand", is_by_hand=True),
)
"""What shows whether the gateway's own configuration costs more than it must."""
