"""TLS at the gateway: what clients see, that it is renewed, and whom the gateway believes."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.envoy_edge import HOST, NO_SERVICE, Gateway, echoing
from tests.support.servers import Certificates, ServerError, wait_until
from tests.support.servers.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_EMPTY = "version: 1\nrules: []\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("second"))


def _trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


def _shown(
    gateway: Gateway, context: ssl.SSLContext
) -> tuple[bytes | None, str | None, str | None]:
    """The certificate that a client sees, the version of TLS, and the protocol that was chosen."""
    with (
        socket.create_connection((HOST, gateway.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connection,
    ):
        chosen = connection.selected_alpn_protocol()
        return connection.getpeercert(binary_form=True), connection.version(), chosen


def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_stay(
    tmp_path: Path, certificates: Certificates, others: Certificates
) -> None:
    kept = tmp_path / "certificates"
    kept.mkdir()
    cert, key = kept / "tls.crt", kept / "tls.key"
    cert.write_bytes(certificates.server.read_bytes())
    key.write_bytes(certificates.server_key.read_bytes())
    settings = {"listen_tls_cert": str(cert), "listen_tls_key": str(key)}
    with (
        echoing() as upstream,
        Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream], **settings) as gateway,
        httpx.Client(base_url=gateway.url, verify=_trusting(certificates.ca)) as client,
    ):
        assert client.get("/").json()["path"] == "/"
        first = _shown(gateway, _trusting(certificates.ca))
        assert first[1] == "TLSv1.3"
        for source, target in ((others.server_key, key), (others.server, cert)):
            beside = target.with_suffix(".new")
            beside.write_bytes(source.read_bytes())
            beside.replace(target)

        def is_new() -> bool:
            try:
                return _shown(gateway, _trusting(others.ca))[0] != first[0]
            except ssl.SSLError:
                return False

        wait_until(is_new, "the new certificate is shown")
        assert client.get("/").status_code == 200


def test_http_2_is_spoken_with_those_who_can_and_nothing_older_than_tls_1_2(
    tmp_path: Path, certificates: Certificates
) -> None:
    settings = {
        "listen_tls_cert": str(certificates.server),
        "listen_tls_key": str(certificates.server_key),
    }
    with (
        echoing() as upstream,
        Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream], **settings) as gateway,
        httpx.Client(base_url=gateway.url, verify=_trusting(certificates.ca), http2=True) as client,
    ):
        reply = client.get("/x")
        assert (reply.http_version, reply.json()["path"]) == ("HTTP/2", "/x")
        old = ("s_client", "-connect", f"{HOST}:{gateway.port}", "-cipher", "ALL:@SECLEVEL=0")
        with pytest.raises(ServerError, match="alert"):
            run("openssl", *old, "-tls1_1")
        assert "TLSv1.2" in run("openssl", *old, "-tls1_2")
        plain = _trusting(certificates.ca)
        plain.set_alpn_protocols(["http/1.1"])
        plain.maximum_version = ssl.TLSVersion.TLSv1_2
        assert _shown(gateway, plain)[1:] == ("TLSv1.2", "http/1.1")


def test_clients_must_show_a_certificate_if_an_authority_is_given(
    tmp_path: Path, certificates: Certificates, others: Certificates
) -> None:
    settings = {
        "listen_tls_cert": str(certificates.server),
        "listen_tls_key": str(certificates.server_key),
        "listen_tls_client_ca": str(certificates.ca),
    }
    right, wrong = _trusting(certificates.ca), _trusting(certificates.ca)
    right.load_cert_chain(certificates.client, certificates.client_key)
    wrong.load_cert_chain(others.client, others.client_key)
    with (
        echoing() as upstream,
        Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream], **settings) as gateway,
    ):
        with httpx.Client(verify=right) as client:
            assert client.get(gateway.url).status_code == 200
        for context in (wrong, _trusting(certificates.ca)):
            with httpx.Client(verify=context) as client, pytest.raises(httpx.TransportError):
                client.get(gateway.url)


class _Secret(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Be quiet."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Handshakes that fail are what is tested."""


@contextmanager
def _encrypted(certificates: Certificates, host: str = HOST) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    server = _Quiet((host, 0), _Secret)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_upstream_must_prove_to_be_the_one_that_was_named(
    tmp_path: Path, certificates: Certificates, others: Certificates
) -> None:
    """By its authority, and by its name: the certificates are for 127.0.0.1 and localhost."""
    with (
        _encrypted(certificates) as right,
        _encrypted(others) as wrong,
        _encrypted(certificates, "127.0.0.2") as elsewhere,
        Gateway(
            tmp_path,
            _EMPTY,
            NO_SERVICE,
            upstream=[
                f"/address=https://{HOST}:{right}",
                f"/name=https://localhost:{right}",
                f"/authority=https://{HOST}:{wrong}",
                f"/other-name=https://127.0.0.2:{elsewhere}",
            ],
            upstream_ca=str(certificates.ca),
        ) as gateway,
    ):
        paths = "/address", "/name", "/authority", "/other-name"
        replies = [httpx.get(f"{gateway.url}{path}") for path in paths]
    assert [reply.status_code for reply in replies] == [200, 200, 503, 503]
    assert replies[0].text == "secret"
    assert replies[2].json()["error"] == "upstream_unavailable"


def test_without_an_authority_those_of_the_system_are_believed(
    tmp_path: Path, certificates: Certificates
) -> None:
    with _encrypted(certificates) as port:
        upstream = [f"https://{HOST}:{port}"]
        with Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=upstream) as gateway:
            assert httpx.get(gateway.url).status_code == 503
        (tmp_path / "again").mkdir()
        again = Gateway(
            tmp_path / "again",
            _EMPTY,
            NO_SERVICE,
            upstream=upstream,
            system_ca=str(certificates.ca),
        )
        with again as gateway:
            assert httpx.get(gateway.url).text == "secret"
