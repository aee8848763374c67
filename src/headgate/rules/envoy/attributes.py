"""A descriptor of a request as attributes, so that rules can be about it.

    domain edge, (user, ada), (plan, free)

    domain: edge
    descriptor: user/plan       the keys in their order: a rule can ask for these and no others
    user: ada
    plan: free

A key that comes again, or that is called like one of the first two, gets a number: `user#2`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DOMAIN: Final = "domain"
DESCRIPTOR: Final = "descriptor"


def attributes_of(domain: str, entries: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The attributes of a request for a descriptor with *entries* in *domain*."""
    keys = [key for key, _ in entries]
    values = dict(zip(attribute_names(keys), (value for _, value in entries), strict=True))
    return {DOMAIN: domain, DESCRIPTOR: joined(keys), **values}


def attribute_names(keys: Iterable[str]) -> list[str]:
    """What the attribute for each of *keys* is called; they are all different."""
    taken = {DOMAIN, DESCRIPTOR}
    numbers: dict[str, int] = {}
    names = []
    for key in keys:
        number = numbers.get(key, 1)
        name = key if number == 1 else f"{key}#{number}"
        while name in taken:
            number += 1
            name = f"{key}#{number}"
        numbers[key] = number
        taken.add(name)
        names.append(name)
    return names


def joined(keys: Iterable[str]) -> str:
    """*keys* in one text. A slash within a key, and a backslash, has a backslash before it."""
    return "/".join(key.replace("\\", r"\\").replace("/", r"\/") for key in keys)
