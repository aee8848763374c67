"""Where this machine keeps the authorities that it believes."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

_KNOWN: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)


def system_authorities() -> str | None:
    """The file with all of them; None if none is found. SSL_CERT_FILE names one, as for OpenSSL."""
    found = ssl.get_default_verify_paths().cafile
    return next((path for path in (found, *_KNOWN) if path and Path(path).is_file()), None)
