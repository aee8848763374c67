"""Calls of language models: Envoy reads fields of requests and the usage of responses by itself.

`json_to_metadata` reads the body of a request before the service is called, which makes Envoy hold
the request until it is complete, up to a bound. `ai_protocol_manager`, behind the filters that call
the service, reads the usage of plain responses and of streams while they pass, byte for byte. Both
leave what they find in metadata, which goes to the service as entries of descriptors: with the
request, and once more at its end. See `policy.envoy_config.attributes` for the entries.

A usage is known only at the clean end of a response that is not compressed, so `accept-encoding` is
not sent upstream.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.envoy.envoy_limits import skipping
from headgate.gateway.envoy.matching import either, looks, negated, path_regex, requests_of
from headgate.gateway.envoy.values import HttpFilter, Json, expression, typed
from headgate.limits import Concurrency
from headgate.llm.request import FIELDS, PROMPTS
from headgate.policy.envoy_config.attributes import (
    BYTES,
    COUNTS,
    EXTRACTION,
    LLM,
    RESERVATION,
    SETTLE,
    SETTLES,
    STATUS,
    UNREAD,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.llm.protocol import Protocol
    from headgate.policy.model import Identity, Policy, Rule

READ: Final = "llm-read"
RATE_LIMIT: Final = "envoy.filters.http.ratelimit"
"""The namespace of the metadata in replies of the service."""

_FILTERS: Final = "envoy.extensions.filters.http"
_READER: Final = f"{_FILTERS}.json_to_metadata.v3.JsonToMetadata"
_USAGE: Final = f"{_FILTERS}.ai_protocol_manager.v3.AiProtocolManager"
_NAMESPACE: Final = "headgate.llm"
_YES: Final = "1"
_QUERY: Final = r"/*(?:\?\C*)?"
_MESSAGES: Final = rf"[^?]*/messages(?:/count_tokens)?{_QUERY}"
_RESPONSES: Final = rf"[^?]*/responses{_QUERY}"
_PATH: Final = ":path"


def reads_bodies(rule: Rule) -> bool:
    """True if *rule* depends on the body of a request to a language model."""
    return rule.mode != "off" and (rule.cost.llm is not None or bool(rule.match.models))


def is_settled(rule: Rule) -> bool:
    """True if requests hold something under *rule* until they are over."""
    slots = any(isinstance(limit, Concurrency) for row in rule.limits.values() for limit in row)
    return rule.mode != "off" and (rule.cost.llm is not None or slots)


def model_paths(policy: Policy) -> str | None:
    """The regular expression for the paths of requests whose bodies are read; None: all of them."""
    endpoints: dict[str, None] = {}
    for rule in filter(reads_bodies, policy.rules):
        endpoints |= dict.fromkeys(rule.match.endpoints or ("/**",))
    return path_regex(endpoints)


# The filters.


def read_filters(rules: Sequence[Rule], identity: Identity) -> tuple[HttpFilter, ...]:
    """The filter that reads the bodies of requests for *rules*; none if no rule needs it."""
    readers = list(filter(reads_bodies, rules))
    if not readers:
        return ()
    found = [_rule(name, name) for name in FIELDS]
    found += [_rule(name, PROMPTS[0], value=_YES) for name in PROMPTS]
    found[0]["on_error"] = {"metadata_namespace": _NAMESPACE, "key": UNREAD, "value": _YES}
    # Servers read JSON whatever its content type is.
    anything = {"allow_empty_content_type": True, "allow_content_types_regex": {"regex": ".*"}}
    config = typed(_READER, request_rules={"rules": found, **anything})
    return (_for(readers, identity, READ, config, []),)


def _rule(field: str, key: str, **more: str) -> Json:
    present = {"metadata_namespace": _NAMESPACE, "key": key, "type": "STRING", **more}
    return {"selectors": [{"key": field}], "on_present": present}


def usage_filters(rules: Sequence[Rule], identity: Identity) -> tuple[HttpFilter, ...]:
    """The filters that read the usage of responses for *rules*, one for each protocol."""
    counting = [rule for rule in rules if rule.mode != "off" and rule.cost.llm is not None]
    if not counting:
        return ()
    messages, responses = looks(_PATH, _MESSAGES), looks(_PATH, _RESPONSES)
    kinds = (
        ("openai", "OPENAI_CHAT_COMPLETIONS", [messages, responses]),
        ("openai-responses", "OPENAI_RESPONSES", [negated(responses)]),
        ("anthropic", "ANTHROPIC_MESSAGES", [negated(messages)]),
    )
    found = []
    for name, protocol, skipped in kinds:
        usage = {"include_unconfigured_routes": True, "default_llm_protocol": protocol}
        config = typed(_USAGE, response_handling={"token_usage": usage})
        found.append(_for(counting, identity, f"llm-usage-{name}", config, skipped))
    return tuple(found)


def _for(
    rules: Sequence[Rule], identity: Identity, name: str, config: Json, skipped: list[Json]
) -> HttpFilter:
    """The filter *name* for requests of *rules*, except for those of *skipped*."""
    requests = requests_of(rules, identity)
    if requests is not None:
        skipped = [negated(requests), *skipped]
    return HttpFilter(name, skipping(name, config, either(skipped)) if skipped else config)


# The entries of descriptors.


def request_entries(rules: Iterable[Rule]) -> list[Json]:
    """The actions that send what has been read of a request, if some of *rules* need it."""
    rules = list(rules)
    found: list[Json] = []
    if any(map(is_settled, rules)):
        found.append({"generic_key": {"descriptor_key": SETTLES, "descriptor_value": _YES}})
    if any(map(reads_bodies, rules)):
        names = (*FIELDS, PROMPTS[0], UNREAD)
        found += [_metadata(f"{LLM}{name}", _NAMESPACE, name) for name in names]
        found.append(_known(f"{LLM}{BYTES}", "request.size > 0", "request.size"))
    return found


def settlement(rules: Iterable[Rule], entries: Sequence[Json]) -> list[Json]:
    """The descriptor that reports the end of a request, in a list; none if *rules* need none.

    *entries* are those of the request itself. Only requests are reported that hold something, or
    that have a usage and hold nothing because the service did not answer before.
    """
    rules = list(filter(is_settled, rules))
    if not rules:
        return []
    has_usage = any(rule.cost.llm is not None for rule in rules)
    test = f"'{RESERVATION}' in metadata.filter_metadata['{RATE_LIMIT}']"
    if has_usage:
        test += f" || has({_USED}.extraction_status)"
    actions = [_known(SETTLE, test, f"'{_YES}'", skips=False)]
    actions.append(_metadata(RESERVATION, RATE_LIMIT, RESERVATION))
    if has_usage:
        model = _metadata(f"{LLM}{FIELDS[0]}", _NAMESPACE, FIELDS[0])
        actions += [*entries, model, *_usage_entries()]
    return [{"actions": actions, "apply_on_stream_done": True}]


_USED: Final = "metadata.typed_filter_metadata['envoy.ai.token_usage']"
_DETAILS: Final = f"{_USED}.input_token_details"
_FIGURES: Final = dict(
    zip(
        COUNTS,
        (
            (f"has({_USED}.input_tokens)", f"{_USED}.input_tokens"),
            (f"has({_USED}.output_tokens)", f"{_USED}.output_tokens"),
            *(
                (f"has({_DETAILS}) && has({_DETAILS}.{name})", f"{_DETAILS}.{name}")
                for name in ("cached_tokens", "cache_creation_tokens")
            ),
        ),
        strict=True,
    )
)
"""The tokens. A field that is not set reads as 0, and no message at all is an error."""


def _usage_entries() -> list[Json]:
    status = f"has({_USED}.extraction_status)", f"{_USED}.extraction_status"
    figures = {**_FIGURES, EXTRACTION: status}
    found = [_known(f"{LLM}{name}", *figure) for name, figure in figures.items()]
    return [*found, _known(f"{LLM}{STATUS}", "response.code > 0", "response.code")]


def _known(key: str, test: str, value: str, *, skips: bool = True) -> Json:
    """The action that sends *value* if *test* holds, else nothing: the whole descriptor unless it
    *skips* the entry."""
    text = f"({test}) ? {value} : request.headers['no such header']"
    return expression(key, text, skips=skips)


def _metadata(key: str, namespace: str, name: str) -> Json:
    """The action that sends a text in metadata; nothing if it is absent."""
    place = {"key": namespace, "path": [{"key": name}]}
    action = {"descriptor_key": key, "metadata_key": place, "source": "DYNAMIC"}
    return {"metadata": {**action, "skip_if_absent": True}}


# Routes and responses of Envoy itself.


def model_route(max_body: int, policy: Policy) -> Json:
    """The parts of a route for requests whose bodies are read; empty if *policy* reads none."""
    if not any(map(reads_bodies, policy.rules)):
        return {}
    found: Json = {"request_body_buffer_limit": max_body}
    if any(rule.mode != "off" and rule.cost.llm is not None for rule in policy.rules):
        found["request_headers_to_remove"] = ["accept-encoding"]
    return found


def of_paths(regex: str | None) -> list[Json]:
    """The matchers of headers for the paths of *regex*."""
    return [] if regex is None else [_path_matcher(regex)]


def _path_matcher(regex: str) -> Json:
    return {"name": _PATH, "string_match": {"safe_regex": {"regex": regex}}}


_ERRORS: Final[dict[int, tuple[str, str, str]]] = {
    400: ("invalid_request_error", "invalid_request_error", "This request is not understood."),
    413: ("request_too_large", "invalid_request_error", "The request is too large."),
    503: ("overloaded_error", "server_error", "The service is not available. Try again later."),
    504: ("timeout_error", "server_error", "The model took too long to answer."),
}
"""The types of Anthropic and of OpenAI, and a message, for responses of Envoy itself."""


def error_bodies(paths: str | None) -> list[tuple[int, list[Json], str]]:
    """The bodies of Envoy's own responses to requests of *paths*: status, matchers of headers, and
    JSON in the form of the provider."""
    rows: tuple[tuple[Protocol, list[Json]], ...] = (
        ("anthropic", [*of_paths(paths), _path_matcher(_MESSAGES)]),
        ("openai", of_paths(paths)),
    )
    return [
        (status, matchers, json.dumps(_error(protocol, status)))
        for protocol, matchers in rows
        for status in _ERRORS
    ]


def _error(protocol: Protocol, status: int) -> dict[str, Any]:
    theirs, kind, message = _ERRORS[status]
    if protocol == "anthropic":
        return {"type": "error", "error": {"type": theirs, "message": message}}
    error = {"message": message, "type": kind, "param": None, "code": theirs}
    return {"error": error}
