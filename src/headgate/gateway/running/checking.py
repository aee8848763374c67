"""Whether a gateway would start, and what Envoy makes of its configuration, without running it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.control.files import PolicyFiles
from headgate.gateway.demo import demo_rules
from headgate.gateway.envoy.documents import documents
from headgate.gateway.running.certificate_doubts import doubts
from headgate.gateway.running.certificates import check_certificates
from headgate.gateway.running.envoy import envoy_program
from headgate.gateway.running.places import places_of
from headgate.gateway.running.run_directory import RunDirectory
from headgate.gateway.running.service import sockets_of
from headgate.gateway.running.validation import validate
from headgate.rules.model import Policy
from headgate.rules.reading import read_policy

if TYPE_CHECKING:
    from headgate.gateway.running.terms import Terms


def check(terms: Terms) -> tuple[str, ...]:
    """What there is to say for *terms*. Raises `PolicyError` for rules, else `GatewayError`.

    Rules of etcd are not asked for: then what Envoy would read has none.
    """
    program = envoy_program(terms.gateway)
    check_certificates(terms.gateway)
    policy = _policy(terms)
    with tempfile.TemporaryDirectory(prefix="headgate-check-") as name:
        directory = RunDirectory(Path(name))
        places = places_of(terms.gateway, directory, sockets_of(terms.service, directory))
        made = documents(policy, terms.gateway, places)
        validate(program, made, directory)
    told = [f"rule {one.rule}: decided {one.decide}: {one.why}" for one in made.decided if one.why]
    return (*told, *made.warnings, *doubts(terms.gateway), "Envoy takes the configuration")


def _policy(terms: Terms) -> Policy:
    if terms.is_demo:
        return read_policy(demo_rules())
    if terms.may_come_later or terms.rules is None:
        return Policy()
    return PolicyFiles(terms.rules).load().policy
