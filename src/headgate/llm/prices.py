"""Prices of models, and the cost of a call in integers.

Prices are in dollars per million tokens, as providers list them, so that a price is as many
micro-dollars (10^-6 dollars) per token. Inside they are integers of a millionth of that, and the
sum of a call is rounded up to a micro-dollar once: costs add up without drift.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Context, Decimal, InvalidOperation
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError

if TYPE_CHECKING:
    from headgate.llm.usage import Usage

MICRO_DOLLARS: Final = 10**6
"""Micro-dollars in a dollar."""

Amount = str | int | float | Decimal
"""Dollars per million tokens, read as the decimal number that is written."""

_SCALE: Final = 10**6
_STEP: Final = Decimal("0.000001")
_CONTEXT: Final = Context(prec=28)
_HIGHEST: Final = 10**6


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; cached and cache-write tokens cost as much as input if unset."""

    input: Amount
    output: Amount
    cached: Amount | None = None
    cache_write: Amount | None = None

    def __post_init__(self) -> None:
        _ = self.scaled

    @property
    def scaled(self) -> _Scaled:
        """The price as integers."""
        price = _scaled(self.input, "input")
        return _Scaled(
            price,
            _scaled(self.output, "output"),
            price if self.cached is None else _scaled(self.cached, "cached"),
            price if self.cache_write is None else _scaled(self.cache_write, "cache_write"),
        )


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Prices as integers, in micro-dollars per million tokens."""

    input: int
    output: int
    cached: int
    cache_write: int

    def cost(self, usage: Usage) -> int:
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        total = (
            plain * self.input
            + usage.cached_tokens * self.cached
            + usage.cache_write_tokens * self.cache_write
            + usage.output_tokens * self.output
        )
        return -(-total // _SCALE)

    def reserve(self, prompt_tokens: int, output_tokens: int) -> int:
        dearest = max(self.input, self.cached, self.cache_write)
        return -(-(prompt_tokens * dearest + output_tokens * self.output) // _SCALE)


class Prices:
    """The prices of models by name or pattern, in which `*` and `?` stand for any characters.

    An exact name comes first, then the longest pattern that matches, so `*` comes last. A model
    that nothing matches, or that is unknown, has the highest of each price listed: an invented name
    is never cheap.
    """

    def __init__(self, prices: Mapping[str, Price]) -> None:
        if not prices:
            raise OptionError("prices of models are empty; list at least one, such as '*'")
        scaled = {pattern: price.scaled for pattern, price in prices.items()}
        self._exact = scaled
        self._patterns = [
            (re.compile(translate(pattern)), scaled[pattern])
            for pattern in sorted(scaled, key=lambda pattern: (-len(pattern), pattern))
            if "*" in pattern or "?" in pattern
        ]
        self._unknown = _Scaled(
            *(max(getattr(one, part.name) for one in scaled.values()) for part in fields(_Scaled))
        )

    def cost(self, model: str | None, usage: Usage) -> int:
        """Return what a call of *model* cost, in micro-dollars, rounded up."""
        return self._of(model).cost(usage)

    def reserve(self, model: str | None, prompt_tokens: int, output_tokens: int) -> int:
        """Return the most that a call of *model* may cost, in micro-dollars.

        The prompt may be written to the cache, which is dearer than input with some providers.
        """
        return self._of(model).reserve(prompt_tokens, output_tokens)

    def _of(self, model: str | None) -> _Scaled:
        if model is None:
            return self._unknown
        if (exact := self._exact.get(model)) is not None:
            return exact
        matching = (price for pattern, price in self._patterns if pattern.match(model))
        return next(matching, self._unknown)


def read_prices(data: object) -> Prices:
    """Return the prices in *data*, as a file has them: models with `input`, `output` and so on.

        gpt-4o*: {input: 2.50, output: 10, cached: 1.25}
        "*": {input: 15, output: 75}

    Raises `OptionError`, which names the model.
    """
    if not isinstance(data, Mapping):
        raise OptionError(f"prices are {data!r}; expected models with their prices")
    prices = {}
    known = [field.name for field in fields(Price)]
    for model, stated in data.items():
        if not isinstance(model, str) or not model:
            raise OptionError(f"{model!r} has a price; expected the name of a model or a pattern")
        if not isinstance(stated, Mapping) or not {"input", "output"} <= set(stated) <= set(known):
            raise OptionError(
                f"the price of {model!r} is {stated!r}; expected input and output, in dollars per "
                "million tokens, and perhaps cached and cache_write"
            )
        try:
            prices[model] = Price(**stated)
        except OptionError as error:
            raise OptionError(f"the price of {model!r}: {error}") from None
    return Prices(prices)


def _scaled(value: object, what: str) -> int:
    """Return *value* in micro-dollars per million tokens, exactly."""
    wrong = f"{what} is {value!r}; expected dollars per million tokens, such as 2.50"
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise OptionError(wrong)
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        raise OptionError(wrong) from None
    if not number.is_finite() or not 0 <= number <= _HIGHEST:
        raise OptionError(f"{wrong}, from 0 to {_HIGHEST}")
    rounded = number.quantize(_STEP, context=_CONTEXT)
    if rounded != number:
        raise OptionError(f"{wrong}, with at most 6 decimals")
    return int(rounded.scaleb(6, context=_CONTEXT))
