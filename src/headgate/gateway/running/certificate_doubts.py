"""What is wrong with a certificate that can be used all the same."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.settings import GatewaySettings

_NOT_YET, _EXPIRED = 9, 10
"""OpenSSL's numbers for what it says of a certificate (X509_V_ERR_...)."""

_TURNS: Final = 10
"""More than a handshake has."""


def doubts(settings: GatewaySettings) -> tuple[str, ...]:
    """A sentence for each. The certificate and its key, if there are any, fit each other."""
    cert, key = settings.listen_tls_cert, settings.listen_tls_key
    if cert is None or key is None:
        return ()
    found = (_out_of_date(cert, key), _readable(key))
    return tuple(told for told in found if told is not None)


def _readable(key: str) -> str | None:
    if stat.S_IMODE(Path(key).stat().st_mode) & 0o007:
        return f"{key}: every user of this machine can read this key; chmod 600 would be right"
    return None


def _out_of_date(cert: str, key: str) -> str | None:
    error = _said_by_a_client(cert, key)
    if error is None or error.verify_code not in (_NOT_YET, _EXPIRED):
        return None
    return f"{cert}: clients will not believe it: {error.verify_message}"


def _said_by_a_client(cert: str, key: str) -> ssl.SSLCertVerificationError | None:
    """What a client says that believes *cert* itself, whoever has made it: a handshake with it."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(cert, key)
    believing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believing.check_hostname = False
    believing.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    believing.load_verify_locations(cert)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (believing.wrap_bio(back, there), served.wrap_bio(there, back, server_side=True))
    for _ in range(_TURNS):
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
