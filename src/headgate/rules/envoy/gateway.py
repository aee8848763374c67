"""What Headgate's own gateway and the service say to each other: names, and what they mean.

Both are written by us, so no client can say any of it: the keys of entries come from the
configuration that `headgate.gateway` makes.

    RLS, domain `headgate`      one descriptor for a request:
                                [decided=a,b] [debug=token] method path host remote_address
                                [header ...]
                                and for what it has cost, when it is over, one for each such rule:
                                report=rule [refused=why] method path host remote_address
                                [header ...]
                                A refusal has dynamic metadata: refused=why
    RLQS, domain `headgate`     a bucket for each rule and caller:
                                rule=id [remote_address] [method] [host] [header ...]
"""

from __future__ import annotations

from typing import Final

GATEWAY_DOMAIN: Final = "headgate"

DECIDED: Final = "headgate.decided"
"""The ids of rules, with commas between, that the gateway decides by itself: they do not count."""

DEBUG: Final = "headgate.debug"
"""What the client has sent as `Headgate-Debug`, by which it may hear how it was decided."""

REPORT: Final = "headgate.report"
"""The id of the one rule that is told what a request has cost, by the hits of its descriptor."""

REFUSED: Final = "headgate.refused"
"""Why a request was refused, as dynamic metadata of Envoy's filter: `LIMIT` or `OUTAGE`. Envoy
reports the bytes of refusals too; a report with this entry, taken from there, does not count. And
Envoy's status for refusals is one for all: for an outage it is to be changed by this."""

LIMIT: Final = "limit"
OUTAGE: Final = "outage"

RULE: Final = "headgate.rule"
"""The id of the rule that a bucket is of; whether it matches, the gateway has seen to."""

METHOD: Final = "method"
PATH: Final = "path"
HOST: Final = "host"
ADDRESS: Final = "remote_address"
