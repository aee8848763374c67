"""What is kept of requests of late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.service import remembered
from headgate.service.remembered import Remembered

if TYPE_CHECKING:
    import pytest


def test_what_is_remembered_is_bounded_and_keeps_what_comes_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered, "MOST", 10)
    monkeypatch.setattr(remembered, "MOST_SEEN", 30)
    cache: Remembered[bytes, int] = Remembered()
    cache.keep(b"often", 1)
    assert cache.get(b"often") is None
    cache.keep(b"often", 1)
    for n in range(1000):
        for _ in range(2):
            cache.keep(b"%d" % n, n)
        assert cache.get(b"often") == 1
        assert len(cache) <= 20
        assert len(cache._seen) <= 30
    assert cache.get(b"0") is None
    cache.clear()
    assert len(cache) == 0


def test_those_who_come_by_once_are_not_remembered() -> None:
    cache: Remembered[bytes, int] = Remembered()
    for n in range(20_000):
        cache.keep(b"%d" % n, n)
    assert len(cache) == 0
