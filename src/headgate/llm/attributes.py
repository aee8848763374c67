"""Calls of language models as attributes of a request, which rules and gateways share.

llm.model: gpt-4o            in lower case; absent if it is unknown
llm.prompt_bytes: 1830       the size of the body
llm.output_tokens: 500       the most that it may generate; absent if it states no limit
llm.completions: 2           how many; absent for one
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from headgate.llm.protocol import protocol_of
from headgate.llm.request import MOST_TOKENS, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODEL: Final = "llm.model"
PROMPT_BYTES: Final = "llm.prompt_bytes"
OUTPUT_TOKENS: Final = "llm.output_tokens"
COMPLETIONS: Final = "llm.completions"
ATTRIBUTES: Final = (MODEL, PROMPT_BYTES, OUTPUT_TOKENS, COMPLETIONS)

_DIGITS: Final = re.compile("[0-9]{1,18}")


def attributes_of(request: ModelRequest) -> dict[str, str]:
    """The attributes of *request*."""
    found = {PROMPT_BYTES: str(request.prompt_bytes)}
    if request.model is not None:
        found[MODEL] = request.model.lower()
    if request.output_tokens is not None:
        found[OUTPUT_TOKENS] = str(request.output_tokens)
    if request.completions != 1:
        found[COMPLETIONS] = str(request.completions)
    return found


def request_of(path: str, attributes: Mapping[str, str]) -> ModelRequest:
    """The request to *path* with *attributes*. One that is no number counts as absent."""
    return ModelRequest(
        protocol_of(path),
        _number(attributes, PROMPT_BYTES) or 0,
        model=attributes.get(MODEL),
        output_tokens=_number(attributes, OUTPUT_TOKENS),
        completions=_number(attributes, COMPLETIONS) or 1,
    )


def _number(attributes: Mapping[str, str], name: str) -> int | None:
    text = attributes.get(name, "")
    return min(int(text), MOST_TOKENS) if _DIGITS.fullmatch(text) else None


class ModelPatterns:
    """Names of models in lower case, in which `*` stands for any text."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._wild = [(name, model_pattern(name)) for name in self.names if "*" in name]

    def matching(self, model: str) -> list[str]:
        """The patterns that *model* matches; a name without `*` is not among them."""
        return [name for name, pattern in self._wild if pattern.match(model)]


def model_pattern(name: str) -> re.Pattern[str]:
    """The pattern of all of a name like *name*, in which `*` stands for any text.

    It takes time in proportion to the name, whatever callers choose.
    """
    return re.compile(translate(re.sub(r"[?\[]", r"[\g<0>]", name)))
