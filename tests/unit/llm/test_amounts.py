"""What limits charge before and after a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import CostError, OptionError
from headgate.llm import (
    KINDS,
    Kind,
    ModelRequest,
    Price,
    Prices,
    Usage,
    actual,
    estimate,
)
from headgate.llm.request import MOST_TOKENS

PRICES = Prices({"m": Price(1, 10, cached="0.5", cache_write=2), "*": Price(7, 70)})
CALL = ModelRequest("openai", prompt_bytes=401, model="m", output_tokens=50)


def reserved(kind: Kind, request: ModelRequest = CALL, prices: Prices | None = PRICES) -> int:
    return estimate(kind, request, default_output_tokens=30, prices=prices)


@pytest.mark.parametrize(
    ("kind", "amount"),
    [
        ("tokens", 151),
        ("input_tokens", 101),
        ("uncached_input_tokens", 101),
        ("output_tokens", 50),
        ("spend", 101 * 2 + 500),
    ],
)
def test_an_estimate_has_the_prompt_and_the_output_limit(kind: Kind, amount: int) -> None:
    assert reserved(kind) == amount


@pytest.mark.parametrize(
    ("kind", "amount"),
    [
        ("tokens", 120),
        ("input_tokens", 100),
        ("uncached_input_tokens", 60),
        ("output_tokens", 20),
        ("spend", 50 + 20 + 20 + 200),
    ],
)
def test_the_actual_amount_follows_from_the_usage(kind: Kind, amount: int) -> None:
    usage = Usage(100, 20, cached_tokens=40, cache_write_tokens=10)
    assert actual(kind, usage, "m", PRICES) == amount


def test_a_request_without_a_limit_counts_the_default_for_each_completion() -> None:
    request = ModelRequest("openai", prompt_bytes=0, completions=4)
    assert reserved("output_tokens", request) == 120
    assert reserved("tokens", request) == 120


def test_the_default_is_not_a_limit_of_requests_that_state_one() -> None:
    request = ModelRequest("openai", prompt_bytes=0, output_tokens=5000)
    assert reserved("output_tokens", request) == 5000
    assert reserved("output_tokens", ModelRequest("openai", 0, output_tokens=0)) == 0


def test_bytes_per_token_can_be_chosen() -> None:
    assert estimate("input_tokens", CALL, default_output_tokens=1, bytes_per_token=2) == 201


def test_amounts_are_bounded() -> None:
    request = ModelRequest("openai", prompt_bytes=10**30, completions=MOST_TOKENS)
    assert reserved("tokens", request) == 2 * MOST_TOKENS


def test_spend_needs_prices_and_tokens_do_not() -> None:
    assert reserved("tokens", prices=None) == 151
    with pytest.raises(OptionError, match="needs prices"):
        reserved("spend", prices=None)
    with pytest.raises(OptionError, match="needs prices"):
        actual("spend", Usage(1, 1), "m")


@pytest.mark.parametrize("tokens", [(-1, 0), (0, -1), (5, 0, 6), (5, 0, 3, 3), (5, 0, -1, 0)])
def test_a_usage_that_cannot_be_is_refused(tokens: tuple[int, ...]) -> None:
    with pytest.raises(CostError, match="negative tokens, or more cached tokens than input"):
        Usage(*tokens)


@given(
    st.sampled_from(KINDS),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.data(),
)
def test_a_call_within_its_limits_takes_no_more_than_its_estimate(
    kind: Kind, prompt: int, output: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(0, prompt))
    cached = data.draw(st.integers(0, size))
    written = data.draw(st.integers(0, size - cached))
    usage = Usage(size, data.draw(st.integers(0, output)), cached, written)
    request = ModelRequest("anthropic", prompt * 4, model="m", output_tokens=output)
    assert 0 <= actual(kind, usage, "m", PRICES) <= reserved(kind, request)
