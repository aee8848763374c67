"""The certificate that clients see: checked before it is used, and taken up when it is renewed.

Envoy is given copies, under a name made of what is in them, so that a certificate and its key only
ever change together, and a pair that does not fit changes nothing.
"""

from __future__ import annotations

import ssl
import stat
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.service.tls import TlsFiles, content_of, load_authority, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.config.gateway import GatewaySettings
    from headgate.gateway.processes.run_directory import RunDirectory


_NOT_YET, _EXPIRED = 9, 10
"""Verification errors of OpenSSL (X509_V_ERR_...)."""

_MOST_STEPS: Final = 10
"""More steps than a handshake has."""


def warnings(settings: GatewaySettings) -> tuple[str, ...]:
    """Warnings about a valid pair of certificate and key: expired, or readable for all users."""
    cert, key = settings.listen_tls_cert, settings.listen_tls_key
    if cert is None or key is None:
        return ()
    found = (_out_of_date(cert, key), _readable(key))
    return tuple(message for message in found if message is not None)


def _readable(key: str) -> str | None:
    if stat.S_IMODE(Path(key).stat().st_mode) & 0o007:
        return f"{key}: every user of this machine can read this key; run chmod 600"
    return None


def _out_of_date(cert: str, key: str) -> str | None:
    error = _verification_error(cert, key)
    if error is None or error.verify_code not in (_NOT_YET, _EXPIRED):
        return None
    return f"{cert}: clients will reject it: {error.verify_message}"


def _verification_error(cert: str, key: str) -> ssl.SSLCertVerificationError | None:
    """The error of a client that trusts *cert* itself, from a handshake in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    for _ in range(_MOST_STEPS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error
            except ssl.SSLError:
                return None
    return None


_FOLDER: Final = "tls"


def check_certificates(settings: GatewaySettings) -> None:
    """Raise `OptionError` if a certificate, a key or a CA file is invalid."""
    cert, key, ca = settings.listen_tls_cert, settings.listen_tls_key, settings.listen_tls_client_ca
    if cert is not None and key is not None:
        TlsFiles(certificate=cert, key=key, client_ca=ca).context("h2")
    if settings.upstream_ca is not None:
        load_authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings.upstream_ca)


class Certificates:
    """The certificate files of *settings*, and their copies in *directory* for Envoy.

    *warnings* are those of the last copies.
    """

    def __init__(self, settings: GatewaySettings, directory: RunDirectory) -> None:
        self._settings = settings
        self._directory = directory
        self.warnings: tuple[str, ...] = ()

    def stamp(self) -> tuple[object, ...]:
        """A value that changes when a file does, without reading it. Never raises."""
        return tuple(version_of(path) for path in self._names().values())

    def given(self) -> GatewaySettings:
        """The settings with the paths of fresh copies. Raises `OptionError`."""
        names = self._names()
        if not names:
            return self._settings
        check_certificates(self._settings)
        self.warnings = warnings(self._settings)
        contents = {name: content_of(path) for name, path in names.items()}
        digest = sha256(b"\0".join(contents.values())).hexdigest()[:16]
        copies = {
            name: str(self._directory.write(f"{_FOLDER}/{name}-{digest}.pem", content))
            for name, content in contents.items()
        }
        return replace(
            self._settings,
            listen_tls_cert=copies["listen_tls_cert"],
            listen_tls_key=copies["listen_tls_key"],
            listen_tls_client_ca=copies.get("listen_tls_client_ca"),
        )

    def forget(self, used: GatewaySettings) -> None:
        """Remove copies that *used* does not name."""
        names = [used.listen_tls_cert, used.listen_tls_key, used.listen_tls_client_ca]
        folder = self._directory.place(_FOLDER)
        for path in _listed(folder):
            if str(path) not in names:
                path.unlink(missing_ok=True)

    def _names(self) -> dict[str, str]:
        names = ("listen_tls_cert", "listen_tls_key", "listen_tls_client_ca")
        found = {name: getattr(self._settings, name) for name in names}
        return {name: path for name, path in found.items() if path is not None}


def _listed(folder: Path) -> Iterable[Path]:
    return list(folder.iterdir()) if folder.is_dir() else ()
