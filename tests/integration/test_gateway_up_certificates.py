"""The certificate that clients of a gateway see: checked, copied, renewed."""

from __future__ import annotations

import signal
import ssl
from typing import TYPE_CHECKING

import httpx
import pytest

from headgate.config.gateway import GatewaySettings
from headgate.errors import OptionError
from headgate.gateway.processes import certificates as running
from headgate.gateway.processes.certificates import warnings
from headgate.gateway.processes.run_directory import RunDirectory
from tests.support.gateway_process import gateway
from tests.support.servers import Certificates, wait_until
from tests.support.servers.process import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificates, Certificates]:
    """Two that do not trust each other."""
    one, two = (Certificates(tmp_path_factory.mktemp(name)) for name in ("one", "two"))
    return one, two


Pairs = tuple[Certificates, Certificates]


def _settings(cert: Path, key: Path, ca: Path | None = None) -> GatewaySettings:
    return GatewaySettings(
        listen_tls_cert=str(cert),
        listen_tls_key=str(key),
        listen_tls_client_ca=None if ca is None else str(ca),
    )


class TestChecking:
    def test_a_pair_that_fits_is_good(self, pairs: Pairs) -> None:
        one, _ = pairs
        running.check_certificates(_settings(one.server, one.server_key, one.ca))

    def test_what_cannot_be_used_is_told_with_its_file(self, pairs: Pairs, tmp_path: Path) -> None:
        one, two = pairs
        locked, empty = tmp_path / "locked.key", tmp_path / "empty.crt"
        encrypt = ("-aes256", "-passout", "pass:word")
        run("openssl", "ec", "-in", str(one.server_key), *encrypt, "-out", str(locked))
        empty.touch()
        for settings, told in [
            (_settings(one.server, two.server_key), "server.key: it is not the key of"),
            (_settings(one.server, locked), "locked.key: it is encrypted"),
            (_settings(one.server, tmp_path / "none"), "none: cannot read: No such file"),
            (_settings(empty, one.server_key), "not a usable PEM file"),
            (_settings(one.server, one.server_key, empty), "empty.crt: not a usable PEM file"),
        ]:
            with pytest.raises(OptionError, match=told):
                running.check_certificates(settings)


def test_what_can_be_used_and_should_not_be_is_told(pairs: Pairs, tmp_path: Path) -> None:
    one, _ = pairs
    assert warnings(_settings(one.server, one.server_key)) == ()
    assert warnings(GatewaySettings()) == ()
    old, asked, key = (tmp_path / name for name in ("old.crt", "asked", "my.key"))
    key.write_bytes(one.server_key.read_bytes())
    key.chmod(0o644)
    run("openssl", "req", "-new", "-key", str(key), "-subj", "/CN=old", "-out", str(asked))
    signed = ("-in", str(asked), "-signkey", str(key), "-days", "-1")
    run("openssl", "x509", "-req", *signed, "-out", str(old))
    assert warnings(_settings(old, key)) == (
        f"{old}: clients will reject it: certificate has expired",
        f"{key}: every user of this machine can read this key; run chmod 600",
    )


def test_envoy_is_given_copies_that_only_change_together(pairs: Pairs, tmp_path: Path) -> None:
    one, two = pairs
    cert, key = tmp_path / "my.crt", tmp_path / "my.key"
    cert.write_bytes(one.server.read_bytes())
    key.write_bytes(one.server_key.read_bytes())
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run")
    found = running.Certificates(_settings(cert, key, one.ca), directory)
    first = found.given()
    assert found.given() == first
    stamp = found.stamp()
    cert.write_bytes(two.server.read_bytes())
    assert found.stamp() != stamp
    with pytest.raises(OptionError, match="it is not the key of"):
        found.given()
    key.write_bytes(two.server_key.read_bytes())
    second = found.given()
    assert second.listen_tls_cert not in (None, first.listen_tls_cert)
    found.forget(second)
    copies = {str(path) for path in (directory.path / "tls").iterdir()}
    given = second.listen_tls_cert, second.listen_tls_key, second.listen_tls_client_ca
    assert copies == set(given)
    cert.unlink()
    assert found.stamp() != stamp


def test_a_renewed_certificate_is_taken_up(pairs: Pairs, tmp_path: Path) -> None:
    old, new = pairs
    cert, key = tmp_path / "my.crt", tmp_path / "my.key"
    cert.write_bytes(old.server.read_bytes())
    key.write_bytes(old.server_key.read_bytes())
    flags = ("--listen-tls-cert", str(cert), "--listen-tls-key", str(key))
    with gateway(tmp_path, *flags) as one:
        url = f"https://127.0.0.1:{one.port}/free"
        assert _is_trusted(url, old)
        cert.write_bytes(new.server.read_bytes())
        one.signal(signal.SIGHUP)
        wait_until(lambda: "the old one stays in use" in one.log, "half a pair is not taken")
        key.write_bytes(new.server_key.read_bytes())
        wait_until(lambda: _is_trusted(url, new), "the new certificate is shown")
        assert not _is_trusted(url, old)


def _is_trusted(url: str, certificates: Certificates) -> bool:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    try:
        return httpx.get(url, verify=context).status_code == 200
    except httpx.TransportError:
        return False
