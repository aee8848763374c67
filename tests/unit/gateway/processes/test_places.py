"""Where Envoy finds what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.processes import up
from headgate.gateway.processes.logs import GatewayError
from headgate.gateway.processes.run_directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path

HTTPS = (parse_upstream("https://example.com"),)


def test_they_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "system_authorities", lambda: "/my/authorities")
    made = up.places_for(GatewaySettings(), RunDirectory(tmp_path), ["/a.sock", "/b.sock"])
    assert (made.directory, made.admin) == (str(tmp_path), f"{tmp_path}/admin.sock")
    assert (made.grpc, made.system_ca) == (("/a.sock", "/b.sock"), "/my/authorities")


def test_nobody_to_believe_matters_only_for_https_upstreams_without_an_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "system_authorities", lambda: None)
    directory = RunDirectory(tmp_path)
    up.places_for(GatewaySettings(), directory, ["/a.sock"])
    up.places_for(GatewaySettings(upstream=HTTPS, upstream_ca="ca.pem"), directory, ["/a.sock"])
    with pytest.raises(GatewayError, match="pass one with --upstream-ca FILE"):
        up.places_for(GatewaySettings(upstream=HTTPS), directory, ["/a.sock"])
