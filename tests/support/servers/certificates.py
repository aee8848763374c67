"""A certificate authority of its own, and the two certificates that it has signed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.servers.process import run

if TYPE_CHECKING:
    from pathlib import Path

_EXTENSIONS = """\
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = IP:127.0.0.1,DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Certificates:
    """PEM files in *directory*: an authority, a certificate for 127.0.0.1, and one for a client.

    Made with the `openssl` command line, version 3, and good for two days. Two of these do not
    trust each other.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file("openssl.cnf").write_text(_EXTENSIONS)
        self.ca, self.ca_key = self._file("ca.crt"), self._file("ca.key")
        self.server, self.server_key = self._file("server.crt"), self._file("server.key")
        self.client, self.client_key = self._file("client.crt"), self._file("client.key")
        self._make(self.ca, self.ca_key, "ca")
        signed = ("-CA", str(self.ca), "-CAkey", str(self.ca_key))
        self._make(self.server, self.server_key, "leaf", *signed)
        self._make(self.client, self.client_key, "leaf", *signed)

    def _file(self, name: str) -> Path:
        return self._directory / name

    def _make(self, certificate: Path, key: Path, extensions: str, *signed: str) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        config = ("-config", str(self._file("openssl.cnf")), "-extensions", extensions)
        subject = ("-subj", f"/CN=headgate tests {certificate.stem}", "-days", "2")
        files = ("-keyout", str(key), "-out", str(certificate))
        run("openssl", "req", "-x509", *curve, *config, *subject, *files, *signed)
