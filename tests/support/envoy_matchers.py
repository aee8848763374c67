"""What Envoy would make of a filter's matchers, as far as ours use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    from headgate.engine.request import Request
    from headgate.gateway.envoy.values import HttpFilter
    from headgate.policy.model import Policy

Headers = dict[str, str]


def policy_of(*rules: str, identity: str = "{}") -> Policy:
    lines = "\n".join(f"  - {{{rule}}}" for rule in rules)
    return read_policy(f"version: 1\nidentity: {identity}\nrules:\n{lines}")


def headers_of(request: Request, query: str = "") -> Headers:
    """The headers of *request* as Envoy has them: several lines as one."""
    found = {":method": request.method, ":path": request.path + query, ":authority": request.host}
    for name, value in request.headers:
        found[name.lower()] = f"{found[name.lower()]},{value}" if name.lower() in found else value
    return {name: value for name, value in found.items() if value or not name.startswith(":")}


def looks_like(regex: str, text: str) -> bool:
    """RE2 matches the whole text; `\\C` is any byte."""
    return re.fullmatch(regex.replace(r"\C", r"[\s\S]"), text) is not None


def holds(predicate: dict[str, Any], headers: Headers) -> bool:
    """Whether an xDS predicate does; a header that is missing fits no expression."""
    ((kind, inner),) = predicate.items()
    if kind == "not_matcher":
        return not holds(inner, headers)
    if kind == "and_matcher":
        return all(holds(one, headers) for one in inner["predicate"])
    if kind == "or_matcher":
        return any(holds(one, headers) for one in inner["predicate"])
    text = headers.get(inner["input"]["typed_config"]["header_name"])
    return text is not None and looks_like(inner["value_match"]["safe_regex"]["regex"], text)


def fits(matcher: dict[str, Any], headers: Headers) -> bool:
    """Whether a header matcher does."""
    text = headers.get(matcher["name"])
    if matcher.get("present_match"):
        found = text is not None
    else:
        found = looks_like(matcher["string_match"]["safe_regex"]["regex"], text or "")
    return found != bool(matcher["invert_match"])


def is_asked(one: HttpFilter, headers: Headers) -> bool:
    """Whether the filter looks at a request at all."""
    if "xds_matcher" not in one.config:
        return True
    (matcher,) = one.config["xds_matcher"]["matcher_list"]["matchers"]
    return not holds(matcher["predicate"], headers)


def inner(one: HttpFilter) -> dict[str, Any]:
    """The configuration of the filter itself, without a matcher around it."""
    found: dict[str, Any] = one.config
    if "extension_config" in found:
        found = found["extension_config"]["typed_config"]
    return found


def descriptors(config: dict[str, Any], headers: Headers) -> list[list[tuple[str, str]]]:
    """The descriptors that the actions of a filter make of a request from 192.0.2.1."""
    rows = (_entries(one["actions"], headers) for one in config["rate_limits"])
    return [row for row in rows if row is not None]


def _entries(actions: list[dict[str, Any]], headers: Headers) -> list[tuple[str, str]] | None:
    row: list[tuple[str, str]] = []
    for action in actions:
        ((kind, of),) = action.items()
        if kind == "extension":  # an expression, which only Envoy can tell
            continue
        if kind == "masked_remote_address" or kind == "remote_address":
            row.append((kind, "192.0.2.1"))
        elif kind == "request_headers":
            if of["header_name"] in headers:
                row.append((of["descriptor_key"], headers[of["header_name"]].split(",")[0]))
            elif not of.get("skip_if_absent"):
                return None
        elif kind == "generic_key" or all(fits(one, headers) for one in of["headers"]):
            row.append((of["descriptor_key"], of["descriptor_value"]))
        else:
            return None
    return row
