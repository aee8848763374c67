"""Prices of models, and the cost of a call in integers.

Prices are in dollars per million tokens, as providers list them, so that a price is as many
micro-dollars (10^-6 dollars) per token. Inside they are integers of a millionth of that, and the
sum of a call is rounded up to a micro-dollar once: costs add up without drift.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.llm.attributes import model_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.llm.usage import Usage

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
    """The prices of models by name or pattern, in which `*` stands for any text.

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
            (model_pattern(pattern), scaled[pattern])
            for pattern in sorted(scaled, key=lambda pattern: (-len(pattern), pattern))
            if "*" in pattern
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
