"""Prices of models, and costs that add up without drift."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import OptionError
from headgate.llm import Price, Prices, Usage
from tests.examples import example_count

PRICES = Prices(
    {
        "gpt-4o": Price(2.50, 10, cached="1.25"),
        "gpt-4o*": Price(5, 15),
        "gpt-*": Price(1, 2),
        "claude-3": Price(3, 15, cached=0.3, cache_write=3.75),
    }
)


def cost(model: str | None, usage: Usage, prices: Prices = PRICES) -> int:
    return prices.cost(model, usage)


def test_a_price_is_micro_dollars_per_token() -> None:
    million = Usage(1_000_000, 1_000_000)
    assert cost("gpt-4o", million) == 12_500_000  # 12.50 dollars
    assert cost("gpt-4o", Usage(4, 1)) == 20


def test_cached_and_written_tokens_have_their_own_prices() -> None:
    assert cost("claude-3", Usage(100, 10, cached_tokens=40, cache_write_tokens=20)) == (
        40 * 3 + 12 + 75 + 150
    )


def test_cached_and_written_tokens_cost_what_input_costs_by_default() -> None:
    assert cost("gpt-x", Usage(100, 0, cached_tokens=40, cache_write_tokens=20)) == 100


@pytest.mark.parametrize(
    ("model", "micro_dollars"),
    [
        ("gpt-4o", 12.5),
        ("gpt-4o-mini", 20),
        ("gpt-4o/a", 20),
        ("gpt-5", 3),
        ("claude-3", 18),
        ("claude-34", 20),  # the dearest input and the dearest output listed
        ("GPT-4o", 20),
        ("invented", 20),
        ("gpt-4o*", 20),
        (None, 20),
    ],
)
def test_the_exact_name_comes_first_then_the_longest_pattern(
    model: str | None, micro_dollars: float
) -> None:
    assert cost(model, Usage(10, 10)) == micro_dollars * 10


def test_each_component_of_an_unknown_model_is_the_dearest_listed() -> None:
    prices = Prices(
        {"a": Price(9, 1, cached=1), "b": Price(1, 9, cached=2, cache_write=3), "c": Price(0, 0)}
    )
    assert cost("d", Usage(3, 1, cached_tokens=1, cache_write_tokens=1), prices) == 9 + 9 + 2 + 9


def test_a_star_is_the_price_of_models_that_nothing_else_matches() -> None:
    prices = Prices({"*": Price(1, 1), "dear": Price(5, 5)})
    assert cost("invented", Usage(1, 1), prices) == 2
    assert cost(None, Usage(1, 1), prices) == 10


def test_a_reservation_counts_the_dearest_kind_of_input() -> None:
    assert PRICES.reserve("claude-3", 100, 10) == 375 + 150
    assert PRICES.reserve(None, 100, 10) == 500 + 150


@pytest.mark.parametrize(
    "amount", ["2.50", 2.5, Decimal("2.5"), " 2.500000000 ", "25e-1", "0.25e1"]
)
def test_a_price_is_read_as_the_decimal_that_is_written(amount: Any) -> None:
    assert cost("m", Usage(4), Prices({"m": Price(amount, 0)})) == 10


def test_a_float_is_read_as_its_digits() -> None:
    """0.07 is a little more than 7/100 in binary: a million tokens would cost a unit more."""
    assert cost("m", Usage(100_000_000), Prices({"m": Price(0.07, 0)})) == 7_000_000


@pytest.mark.parametrize(
    "amount",
    [
        *(-1, "-0.01", "NaN", "Infinity", float("nan"), float("inf"), "", "x", "1,5", True, None),
        *(1_000_001, "1e400", "0.0000001", "1e-999999999", f"2.5{'0' * 40}1", "$2", [], {}),
    ],
)
def test_a_price_that_makes_no_sense_is_refused(amount: Any) -> None:
    with pytest.raises(OptionError, match=r"output is .*; expected dollars per million tokens"):
        Price(1, amount)


def test_prices_list_at_least_one_model() -> None:
    with pytest.raises(OptionError, match="prices of models are empty"):
        Prices({})


@pytest.mark.parametrize("name", ["m?", "m[0-9]", "m."])
def test_only_a_star_stands_for_other_text(name: str) -> None:
    prices = Prices({f"{name}*": Price(1, 1), "dear": Price(9, 9)})
    assert cost("m1x", Usage(1, 0), prices) == 9
    assert cost(f"{name}x", Usage(1, 0), prices) == 1


amounts = st.decimals(0, 1000, places=6)
price = st.builds(Price, amounts, amounts, st.none() | amounts, st.none() | amounts)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    plain, cached, written, output = (draw(st.integers(0, 10**7)) for _ in range(4))
    return Usage(plain + cached + written, output, cached, written)


@settings(max_examples=example_count(400))
@given(price, usages())
def test_a_cost_is_the_exact_sum_rounded_up_once(one: Price, usage: Usage) -> None:
    def exact(amount: Any) -> Fraction:
        return Fraction(one.input if amount is None else amount)

    plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    total = (
        plain * exact(one.input)
        + usage.cached_tokens * exact(one.cached)
        + usage.cache_write_tokens * exact(one.cache_write)
        + usage.output_tokens * exact(one.output)
    )
    assert cost("m", usage, Prices({"m": one})) == ceil(total)


models = st.sampled_from(["a", "ab", "abc", "b", "z", ""])
patterns = st.sampled_from(["a", "ab", "a*", "ab*", "?b*", "*", "b", "*c"])
tables = st.dictionaries(patterns, price, min_size=1).map(Prices)


@settings(max_examples=example_count(400))
@given(tables, st.none() | models, usages(), st.integers(0, 999), st.integers(0, 999))
def test_no_call_within_its_reservation_costs_more(
    prices: Prices, model: str | None, usage: Usage, more_prompt: int, more_output: int
) -> None:
    prompt, output = usage.input_tokens + more_prompt, usage.output_tokens + more_output
    assert prices.cost(model, usage) <= prices.reserve(model, prompt, output)
    assert prices.reserve(model, prompt, output) <= prices.reserve(None, prompt, output)
