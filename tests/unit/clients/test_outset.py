"""Whom a request is for."""

from typing import Any

import pytest

from headgate.clients import Courtesy, Destinations
from headgate.clients.caller import Asked, Outset, origin
from headgate.errors import KeyInvalidError, OptionError


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("https", "api.example.com", None), "https://api.example.com:443"),
        (("HTTPS", "API.Example.com", 443), "https://api.example.com:443"),
        (("http", "127.0.0.1", 8080), "http://127.0.0.1:8080"),
        (("http", "::1", None), "http://[::1]:80"),
        (("http", "[::1]", 80), "http://[::1]:80"),
        (("unix", "x", None), "unix://x"),
    ],
)
def test_one_origin_has_one_name(parts: tuple[str, str, int | None], text: str) -> None:
    assert origin(*parts) == text


def outset(key: Any = None, **options: Any) -> Outset[str]:
    values = {"courtesy": None, "destinations": None, "clock": None, **options}
    return Outset(key=key, **values)


def asked(request: str, at: str = "https://a:443") -> Asked[str]:
    return Asked(request, at, "GET", None, replayable=True)


def test_without_a_key_function_it_is_the_origin() -> None:
    assert outset().journey(asked("x")).key == "https://a:443"


def test_what_a_key_function_returns_is_hashed() -> None:
    keys = {outset(lambda request: request).journey(asked(token)).key for token in ("s1", "s2")}
    assert len(keys) == 2
    assert all(key.startswith("~") and "s1" not in key for key in keys)


def test_a_key_is_one_of_its_origin_alone() -> None:
    """Another server must not close it, nor one whose name and key run together alike."""
    by_token = outset(lambda request: request)
    calls = [("s1", "https://a"), ("s1", "https://b"), ("as1", "https://"), ("1:s1", "https://a")]
    assert len({by_token.journey(asked(*call)).key for call in calls}) == 4


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_key_function_must_return_a_text(key: object) -> None:
    with pytest.raises(KeyInvalidError, match="the key function returned"):
        outset(lambda _: key).journey(asked("x"))


def test_a_courtesy_is_given_once() -> None:
    with pytest.raises(OptionError, match="give the courtesy to the Destinations"):
        outset(courtesy=Courtesy(), destinations=Destinations())


def test_a_request_that_is_never_sent_earns_no_retries() -> None:
    shared = Destinations(Courtesy(retry_share=1, retries_per_second=0))
    journey = outset(destinations=shared, clock=lambda: 0).journey(asked("x"))
    assert not shared.at(journey.key, 0).take_retry(0)
    journey.set_out(0)
    assert shared.at(journey.key, 0).take_retry(0)
