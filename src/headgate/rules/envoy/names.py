"""Names of limits: which are replaced and belong to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.rules.problems import Problem
from headgate.rules.reading.tree import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.rules.envoy.model import Domain


def warn_of_unknown_names(domains: Iterable[Domain]) -> list[Problem]:
    """A warning for every name that a limit replaces and no limit of its domain has."""
    return [problem for domain in domains for problem in _unknown_in(domain)]


def _unknown_in(domain: Domain) -> Iterator[Problem]:
    limits = [
        (each.rate_limit, each.origin)
        for each in domain.all_descriptors()
        if each.rate_limit is not None
    ]
    known = {limit.name for limit, _ in limits}
    for limit, origin in limits:
        for name in limit.replaces:
            if name not in known:
                told = f"it replaces {shown(name)}, a name that no limit in the domain has"
                yield Problem("warning", origin.where, told, origin.line, origin.column)
