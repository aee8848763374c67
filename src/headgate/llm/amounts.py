"""The amounts charged for a call of a model: an estimate before it, the actual one after it.

The estimate is reserved at admission, the difference settled once the response states its usage.
Tokens of the prompt are estimated from the size of the body, output tokens by the limit that the
request states. The model of the request decides the price: a response may name a version of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, assert_never, get_args

from headgate.errors import OptionError
from headgate.llm.request import BYTES_PER_TOKEN, MOST_TOKENS, estimated_prompt_tokens

if TYPE_CHECKING:
    from headgate.llm.prices import Prices
    from headgate.llm.request import ModelRequest
    from headgate.llm.usage import Usage

Kind = Literal[
    "tokens",  # input and output
    "input_tokens",  # with those read from the cache
    "uncached_input_tokens",  # without them
    "output_tokens",
    "spend",  # in micro-dollars
]
"""What a limit counts of a call."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def estimate(
    kind: Kind,
    request: ModelRequest,
    *,
    default_output_tokens: int,
    bytes_per_token: int = BYTES_PER_TOKEN,
    prices: Prices | None = None,
) -> int:
    """Return the amount to reserve for *request*.

    *default_output_tokens* counts for each completion of a request that states no limit.
    """
    prompt = estimated_prompt_tokens(request.prompt_bytes, bytes_per_token)
    output = request.output_tokens
    if output is None:
        output = min(default_output_tokens * request.completions, MOST_TOKENS)
    match kind:
        case "tokens":
            return prompt + output
        case "input_tokens" | "uncached_input_tokens":
            return prompt
        case "output_tokens":
            return output
        case "spend":
            return _required(prices).reserve(request.model, prompt, output)
    assert_never(kind)


def actual(kind: Kind, usage: Usage, model: str | None, prices: Prices | None = None) -> int:
    """Return the amount that a call of *model* took. *model* is that of the request."""
    match kind:
        case "tokens":
            return usage.total
        case "input_tokens":
            return usage.input_tokens
        case "uncached_input_tokens":
            return usage.input_tokens - usage.cached_tokens
        case "output_tokens":
            return usage.output_tokens
        case "spend":
            return _required(prices).cost(model, usage)
    assert_never(kind)


def settled(cost: int | None, estimate: int, status: int | None, *, is_final: bool) -> int:
    """Return what a call is charged at its end: *cost*, that of its usage, if that is known.

    A usage that is not final (of a stream that was cut) cannot lower the *estimate*. Without one an
    error, by the *status* of the response, costs nothing: no model has worked for it.
    """
    if cost is None:
        return 0 if status is not None and status >= 400 else estimate
    return cost if is_final else max(cost, estimate)


def _required(prices: Prices | None) -> Prices:
    if prices is None:
        raise OptionError("a limit of spend needs prices of models")
    return prices
