"""The options of a Redis URL: what may follow its '?'."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from headgate.errors import StoreURLError

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNT: Final = re.compile("[1-9][0-9]{0,3}")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_LONGEST: Final = 600.0
_YES: Final = ("true", "1", "yes")
_NO: Final = ("false", "0", "no")
_OWN: Final = ("connections", "db", "link", "timeout")
_TLS: Final = (
    "ssl_ca_certs",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
)
_SENTINEL: Final = ("sentinel_password", "sentinel_username")

CertificateCheck = Literal["none", "optional", "required"]


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """How to make sure of the server, and what to show it. Paths of PEM files."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: CertificateCheck = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Options:
    """Headgate's own options. The plain link uses nothing but redis-py's public API."""

    timeout: float = 0.05
    connections: int = 2
    plain_link: bool = False
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)


def read_options(
    scheme: str, pairs: Sequence[tuple[str, str]], *, is_tls: bool, is_sentinel: bool
) -> tuple[Options, TLSFiles | None, str]:
    """The options, the TLS files if *is_tls*, and the text of `db`, "" if there is none."""
    given = dict(pairs)
    if len(given) < len(pairs):
        raise StoreURLError(f"{scheme}://: an option is given twice")
    _refuse_unknown(scheme, given, is_tls=is_tls, is_sentinel=is_sentinel)
    for name, value in given.items():
        if not value:
            raise StoreURLError(f"{scheme}://: the option {name} has no value; leave it out")
    tls = _tls(scheme, given) if is_tls else None
    return _own(scheme, given), tls, given.get("db", "")


def _refuse_unknown(scheme: str, given: dict[str, str], *, is_tls: bool, is_sentinel: bool) -> None:
    known = (*_OWN, *(_TLS if is_tls else ()), *(_SENTINEL if is_sentinel else ()))
    for name in given:
        if name in known:
            continue
        if name in _TLS:
            raise StoreURLError(f"{scheme}://: {name} is for TLS; did you mean rediss://?")
        if name in _SENTINEL:
            raise StoreURLError(f"{scheme}://: {name} is for redis+sentinel://")
        raise StoreURLError(
            f"{scheme}://: unknown option {name!r}; there are {', '.join(sorted(known))}"
        )


def _own(scheme: str, given: dict[str, str]) -> Options:
    name, secret = given.get("sentinel_username"), given.get("sentinel_password")
    if name and not secret:
        raise StoreURLError(f"{scheme}://: sentinel_username needs a sentinel_password")
    return Options(
        timeout=_seconds(scheme, given.get("timeout", "0.05")),
        connections=_count(scheme, given.get("connections", "2")),
        plain_link=_one_of(scheme, "link", given.get("link", "raw"), ("raw", "plain")) == "plain",
        sentinel_username=name,
        sentinel_password=secret,
    )


def _tls(scheme: str, given: dict[str, str]) -> TLSFiles:
    check = _one_of(
        scheme,
        "ssl_cert_reqs",
        given.get("ssl_cert_reqs", "required"),
        ("none", "optional", "required"),
    )
    hostname = _boolean(scheme, "ssl_check_hostname", given.get("ssl_check_hostname"))
    if check == "none" and (hostname or "ssl_ca_certs" in given):
        raise StoreURLError(
            f"{scheme}://: ssl_cert_reqs=none looks at no certificate: leave out "
            "ssl_check_hostname and ssl_ca_certs, or ssl_cert_reqs"
        )
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise StoreURLError(f"{scheme}://: ssl_keyfile needs an ssl_certfile")
    return TLSFiles(
        ca_certs=given.get("ssl_ca_certs"),
        certfile=given.get("ssl_certfile"),
        keyfile=given.get("ssl_keyfile"),
        cert_reqs=check,  # type: ignore[arg-type]
        check_hostname=check != "none" and hostname is not False,
    )


def _seconds(scheme: str, text: str) -> float:
    value = float(text) if _SECONDS.fullmatch(text) else math.nan
    if not 0 < value <= _LONGEST:
        raise StoreURLError(
            f"{scheme}://: timeout is {text!r}; expected seconds above 0, up to {_LONGEST:.0f}, "
            "such as 0.05"
        )
    return value


def _count(scheme: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise StoreURLError(f"{scheme}://: connections is {text!r}; expected 1 to 9999")
    return int(text)


def _one_of(scheme: str, name: str, text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise StoreURLError(f"{scheme}://: {name} is {text!r}; expected {' or '.join(words)}")
    return text


def _boolean(scheme: str, name: str, text: str | None) -> bool | None:
    if text is None:
        return None
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise StoreURLError(f"{scheme}://: {name} is {text!r}; expected true or false")
