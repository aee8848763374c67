"""The subject of a client's certificate as text (RFC 4514), from what `ssl` says of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = re.compile(r'[,+"\\<>;=]|^[ #]| $')


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """`CN=ada,O=shop`, the most special first; None if there is no certificate, or no subject."""
    parts = (certificate or {}).get("subject") or ()
    names = [
        "+".join(f"{_SHORT.get(key, key)}={_escaped(text)}" for key, text in part) for part in parts
    ]
    return ",".join(reversed(names)) or None


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)
