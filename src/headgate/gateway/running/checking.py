"""Whether a gateway would start, and what Envoy makes of its configuration, without running it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.control.files import PolicyFiles
from headgate.gateway.demo import demo_rules
from headgate.gateway.envoy.documents import documents
from headgate.gateway.running.certificates import check_certificates
from headgate.gateway.running.envoy import envoy_program
from headgate.gateway.running.errors import GatewayError
from headgate.gateway.running.logs import ENVOY_FORMAT, EnvoyVoice
from headgate.gateway.running.places import places_of
from headgate.gateway.running.run_directory import RunDirectory
from headgate.gateway.running.service import sockets_of
from headgate.rules.model import Policy
from headgate.rules.reading import read_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.gateway.envoy.values import Documents, Json
    from headgate.gateway.running.terms import Terms

_PATIENCE: Final = 60.0


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
        validate(program, made, Path(name))
    told = [f"rule {one.rule}: decided {one.decide}: {one.why}" for one in made.decided if one.why]
    return (*told, *made.warnings, "Envoy takes the configuration")


def _policy(terms: Terms) -> Policy:
    if terms.is_demo:
        return read_policy(demo_rules())
    if terms.may_come_later or terms.rules is None:
        return Policy()
    return PolicyFiles(terms.rules).load().policy


def validate(program: str, made: Documents, directory: Path) -> None:
    """Have Envoy look at all of *made*. Raises `GatewayError` with what it says."""
    path = directory / "whole.json"
    path.write_text(json.dumps(whole(made)), encoding="utf-8")
    call = [program, "--mode", "validate", "--config-path", str(path), "--log-level", "warning"]
    call += ["--log-format", ENVOY_FORMAT, "--disable-hot-restart", "--concurrency", "1"]
    try:
        done = subprocess.run(  # noqa: S603 - Envoy, on a file of ours
            call, capture_output=True, text=True, check=False, timeout=_PATIENCE, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GatewayError(f"{program} cannot be asked: {error}") from error
    if done.returncode:
        voice = EnvoyVoice(is_passed_on=False)
        for line in done.stderr.splitlines():
            voice.hear(line)
        raise GatewayError(f"Envoy refuses the configuration: {voice.last or done.stdout.strip()}")


def whole(made: Documents) -> Json:
    """*made* as one document: Envoy validates what it is given, not what it would discover."""
    found = {
        resource["name"]: resource["typed_config"]
        for document in made.discovered.values()
        for resource in document.get("resources", ())
        if "typed_config" in resource
    }
    listeners = [
        {name: value for name, value in resource.items() if name != "@type"}
        for document in made.discovered.values()
        for resource in document.get("resources", ())
        if "filter_chains" in resource
    ]
    bootstrap = {name: one for name, one in made.bootstrap.items() if name != "dynamic_resources"}
    static = {**bootstrap.get("static_resources", {}), "listeners": _inlined(listeners, found)}
    return {**bootstrap, "static_resources": static}


def _inlined(value: Any, found: Mapping[str, Json]) -> Any:
    """*value* with the filters that it would discover in their places."""
    if isinstance(value, list):
        return [_inlined(one, found) for one in value]
    if not isinstance(value, dict):
        return value
    if "config_discovery" in value and value.get("name") in found:
        return {"name": value["name"], "typed_config": found[value["name"]]}
    return {name: _inlined(one, found) for name, one in value.items()}
