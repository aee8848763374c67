"""TLS contexts of the service's listeners, from PEM files that may be replaced at any time."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.errors import OptionError

LOG: Final = logging.getLogger("headgate.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the server's *certificate* with its chain, its private *key*, and, for mTLS, the
    authorities *client_ca* that must have signed the clients' certificates."""

    certificate: str | Path
    key: str | Path
    client_ca: str | Path | None = None

    def context(self, protocol: str) -> ssl.SSLContext:
        """A context for TLS 1.2 or later and the ALPN *protocol*.

        Each handshake uses the files as they are then. Files that have become unusable are logged,
        and the last good ones stay in use. Raises `OptionError` if they are unusable now.
        """
        versions = self._versions()
        context = newest = self._load(protocol)

        def use_newest(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            nonlocal newest, versions
            if (found := self._versions()) != versions:
                versions = found
                try:
                    newest = self._load(protocol)
                    LOG.info("%s: the files have changed and are in use", self)
                except OptionError as error:
                    LOG.error("TLS: %s; the previous files stay in use", error)  # noqa: TRY400 (no bug)
            connection.context = newest

        context.sni_callback = use_newest  # called in every handshake, with and without a name
        return context

    def _load(self, protocol: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        _load_pair(context, str(self.certificate), str(self.key))
        if self.client_ca is not None:
            load_authority(context, str(self.client_ca))
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _versions(self) -> list[object]:
        return [path and version_of(path) for path in (self.certificate, self.key, self.client_ca)]

    def __str__(self) -> str:
        named = f"TLS with certificate {self.certificate}, key {self.key}"
        return named if self.client_ca is None else f"{named}, client CA {self.client_ca}"


def version_of(path: str | Path) -> tuple[int, ...]:
    """A value that changes when the file at *path* does. Never raises."""
    try:
        found = Path(path).stat()
    except OSError as error:
        return (error.errno or 0,)
    return found.st_ino, found.st_size, found.st_mtime_ns


def content_of(path: str | Path) -> bytes:
    """The content of the file at *path*. Raises `OptionError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"{path}: cannot read: {error.strerror or error}") from error


def load_authority(context: ssl.SSLContext, path: str) -> None:
    """Trust the authorities in the file at *path*. Raises `OptionError`."""
    content_of(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise OptionError(f"{path}: {_reason(error)}") from error


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    def reject_password() -> str:  # OpenSSL would ask for it on the terminal
        raise OptionError(f"{key}: it is encrypted; expected a key without a password")

    for path in (certificate, key):
        content_of(path)
    try:
        context.load_cert_chain(certificate, key, password=reject_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise OptionError(f"{key}: it is not the key of {certificate}") from error
        raise OptionError(f"{certificate} and {key}: {_reason(error)}") from error


def _reason(error: ssl.SSLError) -> str:
    return f"not a usable PEM file ({(error.reason or 'unknown').lower().replace('_', ' ')})"
