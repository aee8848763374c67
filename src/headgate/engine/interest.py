"""Which headers of a request a policy looks at: no other can change what is asked about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.rules.model import Match, Policy, Rule

_COOKIE: Final = "cookie"
_NAMED: Final = "header:"


def headers_of_interest(policy: Policy) -> frozenset[str]:
    """The names, in lower case, of all headers that may matter under *policy*."""
    identity = policy.identity
    found = {identity.address.header}
    for source in identity.sources.values():
        if source.header is not None:
            found.add(source.header)
        if source.cookie is not None:
            found.add(_COOKIE)
    for rule in policy.rules:
        found.update(_of_rule(rule))
    for kind in policy.priorities:
        found.update(_of_match(kind.match))
    return frozenset(name.lower() for name in found)


def _of_match(match: Match) -> Iterator[str]:
    for name, _ in match.headers:
        yield name
    if match.cookies:
        yield _COOKIE


def _of_rule(rule: Rule) -> Iterator[str]:
    yield from _of_match(rule.match)
    for part in rule.key_by:
        if part.startswith(_NAMED):
            yield part.removeprefix(_NAMED)
        elif part.startswith(f"{_COOKIE}:"):
            yield _COOKIE
    if rule.cost.header is not None:
        yield rule.cost.header
    if rule.idempotency is not None:
        yield rule.idempotency.header
