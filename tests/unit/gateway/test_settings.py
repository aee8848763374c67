"""The settings of the gateway, as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.config.gateway import NAMES, GatewaySettings, contradictions, parse_upstream
from headgate.errors import OptionError


def _values(**changed: Any) -> dict[str, Any]:
    default = GatewaySettings()
    return {name: getattr(default, name) for name in NAMES} | changed


def test_the_defaults_make_sense_and_listen_on_loopback_alone() -> None:
    settings = GatewaySettings()
    assert [str(one) for one in settings.listen] == ["127.0.0.1:8080"]
    assert all(one.is_loopback for one in settings.listen)
    assert settings.decide == "exact"
    assert list(contradictions(_values())) == []


@pytest.mark.parametrize(
    ("changed", "name", "told"),
    [
        ({"listen_tls_cert": "a"}, "listen_tls_cert", "listen_tls_key is missing"),
        ({"listen_tls_key": "a"}, "listen_tls_key", "listen_tls_cert is missing"),
        ({"listen_tls_client_ca": "a"}, "listen_tls_client_ca", "without TLS"),
        ({"listen": ()}, "listen", "nowhere"),
        (
            {"upstream": (parse_upstream("/a=http://x"), parse_upstream("/a/=http://y"))},
            "upstream",
            "same requests",
        ),
    ],
)
def test_what_contradicts_itself_is_told_by_the_name_of_the_setting(
    changed: dict[str, Any], name: str, told: str
) -> None:
    [(found, message)] = contradictions(_values(**changed))
    assert found == name
    assert told in message
    with pytest.raises(OptionError, match=name):
        GatewaySettings(**changed)


def test_several_upstreams_for_different_requests_are_fine() -> None:
    urls = "http://x", "/a=http://x", "a.org=http://x", "a.org/a=http://x"
    assert list(contradictions(_values(upstream=tuple(map(parse_upstream, urls))))) == []
