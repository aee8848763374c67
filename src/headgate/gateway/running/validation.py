"""What Envoy says to a configuration before it has to work with it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.running.errors import GatewayError, NotNowError
from headgate.gateway.running.logs import ENVOY_FORMAT, EnvoyVoice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.gateway.envoy.values import Documents, Json
    from headgate.gateway.running.run_directory import RunDirectory

_WHOLE: Final = "whole.json"
_PATIENCE: Final = 30.0


def validate(program: str, made: Documents, directory: RunDirectory) -> None:
    """Have Envoy look at all of *made*. Raises `GatewayError` with what it says."""
    path = directory.write(_WHOLE, json.dumps(whole(made)).encode())
    call = [program, "--mode", "validate", "--config-path", str(path), "--log-level", "warning"]
    call += ["--log-format", ENVOY_FORMAT, "--disable-hot-restart", "--concurrency", "1"]
    try:
        done = subprocess.run(  # noqa: S603 - Envoy, on a file of ours
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotNowError(f"{program} cannot be asked: {error}") from error
    finally:
        path.unlink(missing_ok=True)
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
