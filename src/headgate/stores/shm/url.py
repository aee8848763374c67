"""What a URL such as `shm://name?size=64MB` says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headgate.errors import StoreURLError
from headgate.server_urls import URLReader
from headgate.units import MILLISECOND, SECOND

SMALLEST_SIZE: Final = 1 << 20
LARGEST_SIZE: Final = 64 << 30
USUAL_SIZE: Final = 32 << 20
"""Half of what a container has in /dev/shm unless it is told otherwise."""
USUAL_TIMEOUT_NS: Final = 50 * MILLISECOND

_URL: Final = re.compile(r"shm://(.*)", re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME: Final = 64
_SIZE: Final = re.compile(r"([1-9][0-9]{0,11})(B|KB|MB|GB)?", re.IGNORECASE)
_SECONDS: Final = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_UNITS: Final = {"": 0, "B": 0, "KB": 10, "MB": 20, "GB": 30}
_OPTIONS: Final = ("size", "timeout")
_READER: Final = URLReader("shm", StoreURLError)


@dataclass(frozen=True, slots=True)
class ShmAddress:
    """Which store, and how it is to be kept."""

    name: str
    size: int | None = None
    """Bytes; None: as large as it is, or the usual size."""
    timeout_ns: int = USUAL_TIMEOUT_NS
    """How long to wait for one's turn."""


def read_url(url: str) -> ShmAddress:
    """What *url* says; `StoreURLError` if that makes no sense."""
    found = _URL.fullmatch(url)
    if found is None:
        raise StoreURLError("the URL of a store in shared memory looks like 'shm://name'")
    name, path, pairs = _READER.split(found[1])
    if path.strip("/") or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise _READER.wrong(
            f"the name is {(name + path)[:80]!r}; expected 1 to {_LONGEST_NAME} letters, digits, "
            "'-', '_' and single dots, beginning with a letter or digit, as in 'shm://my-app'"
        )
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _READER.wrong("an option is given twice")
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise _READER.wrong(f"unknown option {unknown[0]!r}; there are 'size' and 'timeout'")
    size, timeout = options.get("size"), options.get("timeout")
    return ShmAddress(
        name,
        None if size is None else _size(size),
        USUAL_TIMEOUT_NS if timeout is None else _timeout_ns(timeout),
    )


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    size = int(found[1]) << _UNITS[(found[2] or "").upper()] if found else 0
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise _READER.wrong(f"size is {text!r}; expected 1MB to 64GB, such as 'size=64MB'")
    return size


def _timeout_ns(text: str) -> int:
    nanoseconds = int(float(text) * SECOND) if _SECONDS.fullmatch(text) else 0
    if not MILLISECOND <= nanoseconds <= 10 * SECOND:
        raise _READER.wrong(f"timeout is {text!r}; expected seconds from 0.001 to 10")
    return nanoseconds
