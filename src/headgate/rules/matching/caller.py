"""Which rules are for a caller, whatever it asks for: what a rule says of who asks, and of what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.rules.matching.conditions import Enquiry, conditions_of
from headgate.rules.matching.endpoint import ROUTE
from headgate.rules.matching.pattern import ANY, ONE, compiled
from headgate.rules.matching.shelf import Candidate, Shelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.rules.model import Match, Rule
    from headgate.rules.request import Request


class CallerMatcher:
    """Those of *rules* that decide, sorted by what they ask of the caller.

    It is not changed after it is made: any number of threads may use it.
    """

    __slots__ = ("_enquiry", "_rules", "_shelf")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rule for rule in rules if rule.mode == "enforce")
        matches = [_of_caller(rule.match) for rule in self._rules]
        self._enquiry = Enquiry(matches)
        self._shelf = Shelf.of([Candidate(n, conditions_of(one)) for n, one in enumerate(matches)])

    def matching(self, request: Request, found: Mapping[str, str | None]) -> tuple[Rule, ...]:
        """The rules for some request of the caller who made *request*, in their order.

        Its path and its method do not matter. *found* is what identity found of the caller.
        """
        positions: set[int] = set()
        self._shelf.gather(self._enquiry.facts(request, found), positions)
        return tuple([self._rules[position] for position in sorted(positions)])


def only_endpoint(match: Match) -> str | None:
    """The one endpoint that requests can have which *match* is for, as `endpoint_of` tells it; None
    if there may be several."""
    routes = [values for name, values in match.attributes if name == ROUTE]
    if routes:
        named = {route for values in routes for route in values or ()}
        return named.pop() if len(named) == 1 else None
    patterns = {compiled(endpoint).segments for endpoint in match.endpoints}
    if len(patterns) != 1:
        return None
    segments = patterns.pop()
    return None if ONE in segments or ANY in segments else "/" + "/".join(segments)


def only_method(match: Match) -> str | None:
    """The one method, in upper case, that *match* names; None if it names several or none.

    GET and HEAD are one: they are counted together.
    """
    named = set(map(str.upper, match.methods))
    if "GET" in named:
        named.discard("HEAD")
    return named.pop() if len(named) == 1 else None


def _of_caller(match: Match) -> Match:
    """What *match* asks of the caller. The route says what is asked, like the endpoint."""
    attributes = tuple(one for one in match.attributes if one[0] != ROUTE)
    return replace(match, endpoints=(), methods=(), attributes=attributes)
