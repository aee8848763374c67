"""The parts of the body of a request to a language model that limits need.

Servers disagree about bodies that are not quite right. Ours is the dearest of the readings that are
known:

- The largest of all limits of output tokens counts, whatever its name, and its keys in any case:
  servers in Go ignore case, llama.cpp lets `n_predict` override `max_tokens`.
- Numbers may be texts or floats, as lenient servers accept them. What is no number above zero
  counts as absent: -1 and 0 mean "no limit" to some.
- Of duplicate keys, servers take the first or the last: the largest number counts, and two
  different models make the model unknown.
- Of a body that is no JSON object to us (damaged, nested too deep, numbers too long), the limits
  are collected wherever they stand, and the model is unknown.

Time is proportional to the size of the body.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.llm.protocol import Protocol, bare_path, protocol_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_TOKENS: Final = 10**9
"""The largest number of tokens; a larger one counts as this."""

BYTES_PER_TOKEN: Final = 4

_OUTPUT_LIMITS: Final = frozenset(
    ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
)
_COMPLETIONS: Final = frozenset(("n", "best_of"))
"""How many completions a server generates; `best_of` includes the `n` that it returns."""

_MOST_MEMBERS: Final = 1_000
_LONGEST_MODEL: Final = 256
_LONGEST_NUMBER: Final = 40
_DECODER: Final = json.JSONDecoder()
_OPEN, _CLOSE, _COLON, _COMMA = (
    re.compile(rf"[ \t\n\r]*{mark}[ \t\n\r]*") for mark in (r"\{", r"\}", ":", ",")
)
_STATED: Final = re.compile(
    r'"(max_(?:completion_|output_)?tokens|n_predict|n|best_of|stream)"\s*+:\s*+'
    r'(true\b|"?+\s*+[0-9][0-9.eE+]{0,20})',
    re.IGNORECASE,
)
"""A limit of output tokens, a number of completions or a stream, wherever it stands."""

_EMBEDDINGS: Final = re.compile(r"(?:/[\w.-]+)*/embeddings")
_DEPLOYMENT: Final = re.compile(r"/deployments/([^/]+)/")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A call of a model, as far as limits need it.

    *prompt_bytes*: the size of the body. *model*: None if it is not stated, or in two ways.
    *completions*: how many the call generates. *output_tokens*: the most tokens of all of them;
    None if no limit is stated, 0 if the call generates nothing. *reports_usage*: the response will
    state the usage. *is_readable*: False if the body is no JSON object, or compressed, so that a
    server may read more in it.
    """

    protocol: Protocol
    prompt_bytes: int
    model: str | None = None
    completions: int = 1
    output_tokens: int | None = None
    streams: bool = False
    reports_usage: bool = True
    is_readable: bool = True


def read_request(path: str, body: bytes, content_type: str | None = None) -> ModelRequest:
    """Read the *body* of a request to *path*. Raises nothing: a bad body has a cautious reading.

    A request without a body generates nothing.
    """
    protocol = protocol_of(path)
    if not body:
        return ModelRequest(protocol, 0, output_tokens=0, is_readable=False)
    if (content_type or "").lower().startswith("multipart/") and body.startswith(b"--"):
        return ModelRequest(protocol, len(body), is_readable=False)
    members = _members(text := _text(body))
    fields = _stated(text) if members is None else _by_key(members)
    streams = any(value is not False and value is not None for value in fields.get("stream", ()))
    completions = _completions(fields)
    return ModelRequest(
        protocol,
        len(body),
        model=None if members is None else _model(path, fields.get("model", ())),
        completions=completions,
        output_tokens=_output_tokens(path, fields, completions, is_readable=members is not None),
        streams=streams,
        reports_usage=not streams or _reports_usage(path, protocol, members or ()),
        is_readable=members is not None,
    )


FIELDS: Final = ("model", *sorted(_OUTPUT_LIMITS), *sorted(_COMPLETIONS))
"""The fields of a body whose values `request_of_fields` reads."""

PROMPTS: Final = ("messages", "prompt")
"""The fields of a body by which a server generates an output."""


def request_of_fields(
    path: str, fields: Mapping[str, str], prompt_bytes: int, *, is_readable: bool
) -> ModelRequest:
    """Return the request to *path* with *fields*, which a gateway has read in its body as texts.

    They are `FIELDS`, and any of `PROMPTS` with any value. Of duplicates it has one, so that the
    reading is less cautious than that of the body.
    """
    values: dict[str, list[Any]] = {name: [text] for name, text in fields.items()}
    completions = _completions(values)
    return ModelRequest(
        protocol_of(path),
        prompt_bytes,
        model=_model(path, values.get("model", ())) if is_readable else None,
        completions=completions,
        output_tokens=_output_tokens(path, values, completions, is_readable=is_readable),
        is_readable=is_readable,
    )


def estimated_prompt_tokens(prompt_bytes: int, bytes_per_token: int = BYTES_PER_TOKEN) -> int:
    """Return the estimate for a prompt: bytes of the request body by *bytes_per_token*, rounded up.

    English text has about four bytes a token; the JSON around it is counted too.
    """
    return min(-(-prompt_bytes // bytes_per_token), MOST_TOKENS)


def with_usage_reported(body: bytes) -> bytes:
    """Return *body*, a streamed call of OpenAI's protocol, with `stream_options.include_usage` set.

    Of use if `ModelRequest.reports_usage` is False. All other bytes stay as they are. A body that
    is no such call comes back unchanged: servers refuse `stream_options` without `stream`.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return body
    members = _members(text)
    if not members or not any(key == "stream" and value is True for key, value, *_ in members):
        return body
    options = [one for one in members if one.key == "stream_options"]
    for one in reversed(options):
        stated = one.value if isinstance(one.value, dict) else {}
        if stated.get("include_usage") is not True:
            new = json.dumps({**stated, "include_usage": True})
            text = text[: one.start] + new + text[one.end :]
    if not options:
        end = members[-1].end
        text = text[:end] + ', "stream_options": {"include_usage": true}' + text[end:]
    return text.encode("utf-8")


class _Member(NamedTuple):
    """A member of the outermost object, with the place of its value in the text."""

    key: str
    value: Any
    start: int
    end: int


def _text(body: bytes) -> str:
    """Return *body* as text, in the encoding that JSON readers detect; damaged bytes are marked."""
    return body.decode(json.detect_encoding(body), "replace")


def _members(text: str) -> list[_Member] | None:
    """Return the members of the JSON object at the start of *text*, duplicates too; else None."""
    members: list[_Member] = []
    try:
        place = _after(_OPEN, text, 0)
        if _CLOSE.match(text, place):
            return members
        while len(members) < _MOST_MEMBERS:
            key, place = _DECODER.raw_decode(text, place)
            if not isinstance(key, str):
                return None
            start = _after(_COLON, text, place)
            value, end = _DECODER.raw_decode(text, start)
            members.append(_Member(key, value, start, end))
            if _CLOSE.match(text, end):
                return members
            place = _after(_COMMA, text, end)
    except (ValueError, RecursionError):
        pass
    return None


def _after(mark: re.Pattern[str], text: str, place: int) -> int:
    found = mark.match(text, place)
    if found is None:
        raise ValueError(mark.pattern)
    return found.end()


def _by_key(members: Iterable[_Member]) -> dict[str, list[Any]]:
    fields: dict[str, list[Any]] = {}
    for one in members:
        fields.setdefault(one.key.casefold(), []).append(one.value)
    return fields


def _stated(text: str) -> dict[str, list[Any]]:
    """Return what a text that is no JSON object states, wherever it stands."""
    fields: dict[str, list[Any]] = {}
    for count, found in enumerate(_STATED.finditer(text)):
        if count == _MOST_MEMBERS:  # no call has so many
            return {"max_tokens": [MOST_TOKENS], "stream": [True]}
        fields.setdefault(found[1].casefold(), []).append(found[2].strip('"'))
    return fields


def _model(path: str, stated: Iterable[object]) -> str | None:
    """Return the model, if body and path (of a deployment, with Azure) agree on one."""
    names = [*stated, *_DEPLOYMENT.findall(bare_path(path))]
    model = names[0] if names else None
    if not isinstance(model, str) or any(name != model for name in names):
        return None
    return model if 0 < len(model) <= _LONGEST_MODEL and model.isprintable() else None


def _output_tokens(
    path: str, fields: dict[str, list[Any]], completions: int, *, is_readable: bool
) -> int | None:
    if limits := _numbers(fields, _OUTPUT_LIMITS):
        return min(max(limits) * completions, MOST_TOKENS)
    generates = not is_readable or "messages" in fields or "prompt" in fields
    return 0 if not generates and _EMBEDDINGS.fullmatch(bare_path(path)) else None


def _completions(fields: dict[str, list[Any]]) -> int:
    prompts = max(map(_prompts, fields.get("prompt", ())), default=1)
    return min(max(_numbers(fields, _COMPLETIONS), default=1) * prompts, MOST_TOKENS)


def _prompts(value: object) -> int:
    """Return how many prompts the `prompt` of a legacy completion has; a list of tokens is one."""
    if not isinstance(value, list) or not value or isinstance(value[0], int):
        return 1
    return len(value)


def _numbers(fields: dict[str, list[Any]], names: Iterable[str]) -> list[int]:
    numbers = [_number(value) for name in names for value in fields.get(name, ())]
    return [number for number in numbers if number is not None]


def _number(value: object) -> int | None:
    """Return the number above zero that *value* may mean to a server, rounded up; else None."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return MOST_TOKENS if value >= MOST_TOKENS else math.ceil(value)


def _reports_usage(path: str, protocol: Protocol, members: Iterable[_Member]) -> bool:
    if protocol == "anthropic" or bare_path(path).endswith("/responses"):
        return True
    options = [one.value for one in members if one.key == "stream_options"]
    return bool(options) and all(
        isinstance(value, dict) and value.get("include_usage") is True for value in options
    )
