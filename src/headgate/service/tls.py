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
                    LOG.error("%s; the previous files stay in use", error)  # noqa: TRY400 (no bug)
            connection.context = newest

        context.sni_callback = use_newest  # called in every handshake, with and without a name
        return context

    def _load(self, protocol: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # SSLError is one
            raise OptionError(f"{self}: {error}") from error
        return context

    def _versions(self) -> list[tuple[int, int, int] | None]:
        """The inode, size and modification time of each file."""
        found: list[tuple[int, int, int] | None] = []
        for path in (self.certificate, self.key, self.client_ca):
            try:
                known = None if path is None else Path(path).stat()
            except OSError:
                known = None
            found.append(known and (known.st_ino, known.st_size, known.st_mtime_ns))
        return found

    def __str__(self) -> str:
        named = f"TLS with certificate {self.certificate}, key {self.key}"
        return named if self.client_ca is None else f"{named}, client CA {self.client_ca}"
