"""The URL of a store in shared memory."""

import pytest

from headgate.errors import StoreURLError
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import DEFAULT_TIMEOUT_NS, ShmAddress, read_url


def test_a_name_is_enough() -> None:
    assert read_url("shm://my-app") == ShmAddress("my-app", None, DEFAULT_TIMEOUT_NS)
    assert read_url("SHM://My_App.api/").name == "My_App.api"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1MB", 2**20), ("64mb", 64 * 2**20), ("2GB", 2 * 2**30), ("1048577", 2**20 + 1)],
)
def test_a_size_is_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert read_url(f"shm://a?size={text}").size == size


def test_a_timeout_is_seconds() -> None:
    assert read_url("shm://a?timeout=0.2&size=1MB").timeout_ns == 200_000_000


@pytest.mark.parametrize(
    "url",
    [
        "shm://",
        "shm:///",
        "shm:///dev/shm/x",
        "shm://a/b",
        "shm://../../etc/passwd",
        "shm://..",
        "shm://.hidden",
        "shm://-a",
        "shm://a b",
        "shm://a%2Fb",
        "shm://a\0b",
        "shm://user@a",
        "shm://a:80",
        "shm://" + "a" * 65,
        "shm://" + ".".join(["a" * 40] * 2),
        "shm://a..b",
        "shm://caf\N{LATIN SMALL LETTER E WITH ACUTE}",
        "shm://a?size=1KB",
        "shm://a?size=65GB",
        "shm://a?size=-1MB",
        "shm://a?size=1.5MB",
        "shm://a?size=",
        "shm://a?size=1MB&size=2MB",
        "shm://a?timeout=0",
        "shm://a?timeout=11",
        "shm://a?timeout=nan",
        "shm://a?tiemout=1",
        "shm://a?size",
        "shm://a#b",
        "redis://a",
        "shm:a",
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(StoreURLError, match="shm://"):
        ShmStore(url)
