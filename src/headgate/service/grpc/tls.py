"""The files that a server proves itself with, and knows its callers by."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the server's *certificate* with its chain, the *key* to it, and, if callers must
    have certificates too (mTLS), the authorities *client_ca* that have to have signed those."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For HTTP/2 and at least TLS 1.2; `OptionError` if a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # SSLError is one
            raise OptionError(f"TLS with {self._named()}: {error}") from error
        return context

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """What is in the files: certificate, key, authorities. `OptionError` if unreadable."""
        self.context()  # says what is wrong with them before anyone else stumbles
        ca = None if self.client_ca is None else self.client_ca.read_bytes()
        return self.certificate.read_bytes(), self.key.read_bytes(), ca

    def _named(self) -> str:
        named = f"certificate {self.certificate}, key {self.key}"
        return named if self.client_ca is None else f"{named}, client CA {self.client_ca}"
