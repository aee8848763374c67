"""Where Envoy finds what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.gateway.running import places
from headgate.gateway.running.errors import GatewayError
from headgate.gateway.running.run_directory import RunDirectory
from headgate.gateway.settings import GatewaySettings
from headgate.gateway.upstreams import parse_upstream

if TYPE_CHECKING:
    from pathlib import Path

HTTPS = (parse_upstream("https://example.com"),)


def test_they_are_those_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "system_authorities", lambda: "/my/authorities")
    made = places.places_of(GatewaySettings(), RunDirectory(tmp_path), ["/a.sock", "/b.sock"])
    assert (made.directory, made.admin) == (str(tmp_path), f"{tmp_path}/admin.sock")
    assert (made.grpc, made.system_ca) == (("/a.sock", "/b.sock"), "/my/authorities")


def test_nobody_to_believe_matters_only_for_https_upstreams_without_an_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "system_authorities", lambda: None)
    directory = RunDirectory(tmp_path)
    places.places_of(GatewaySettings(), directory, ["/a.sock"])
    places.places_of(GatewaySettings(upstream=HTTPS, upstream_ca="ca.pem"), directory, ["/a.sock"])
    with pytest.raises(GatewayError, match="name one with --upstream-ca FILE"):
        places.places_of(GatewaySettings(upstream=HTTPS), directory, ["/a.sock"])
