"""Our headers among those of a response that has some already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.responses import pressure, ratelimit_draft11

if TYPE_CHECKING:
    from collections.abc import Iterable

LISTS: Final = tuple(
    name.lower() for name in (ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT, pressure.QUEUE)
)
"""The fields that several servers on the way may add to."""


def merged(
    existing: Iterable[tuple[str, str]], ours: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The lines of *existing* with *ours* after them, and nothing said twice.

    A header of ours replaces one of the same name, in whatever case. `RateLimit`,
    `RateLimit-Policy` and `Headgate-Queue` are lists: what a server behind us says of policies of
    its own stays, as the draft asks of intermediaries, and what it says of policies of the same
    name does not. The load that an app reports itself stays, too: it knows better.
    """
    new, old = list(ours), list(existing)
    if any(name.lower().startswith(pressure.ORCA) for name, _ in old):  # or `...-bin`
        new = [line for line in new if line[0] != pressure.ORCA]
    replaced = {name.lower() for name, _ in new}
    if not any(name.lower() in replaced for name, _ in old):
        return old + new
    known = {
        name.lower(): ratelimit_draft11.names_in(value)
        for name, value in new
        if name.lower() in LISTS
    }
    kept = []
    for name, value in old:
        field = name.lower()
        if field in known:
            left = ratelimit_draft11.without_policies(value, known[field])
            kept += [(name, left)] if left else []
        elif field not in replaced:
            kept.append((name, value))
    return kept + new
