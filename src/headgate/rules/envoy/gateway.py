"""What Headgate's own gateway and the service say to each other: names, and what they mean.

Both are written by us, so no client can say any of it: the keys of entries come from the
configuration that `headgate.gateway` makes.

    RLS, domain `headgate`      one descriptor for a request:
                                [decided=a,b] method path host remote_address [header ...]
                                and for what it has cost, when it is over, one for each such rule:
                                report=rule method path host remote_address [header ...]
    RLQS, domain `headgate`     a bucket for each rule and caller:
                                rule=id [remote_address] [method] [host] [header ...]
"""

from __future__ import annotations

from typing import Final

GATEWAY_DOMAIN: Final = "headgate"

DECIDED: Final = "headgate.decided"
"""The ids of rules, with commas between, that the gateway decides by itself: they do not count."""

REPORT: Final = "headgate.report"
"""The id of the one rule that is told what a request has cost, by the hits of its descriptor."""

RULE: Final = "headgate.rule"
"""The id of the rule that a bucket is of; whether it matches, the gateway has seen to."""

METHOD: Final = "method"
PATH: Final = "path"
HOST: Final = "host"
ADDRESS: Final = "remote_address"
