"""What a replay leaves out or takes for granted, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.simulator.tallies import MOST_KEYS
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.rules.model import Policy


def notes_on(
    policy: Policy, *, delayed: int, latency_ns: int | None, is_exact: bool
) -> Iterator[str]:
    """What to know about a replay under *policy*: *latency_ns* is how long requests were served
    for that did not say, if that mattered; *is_exact*, whether all keys were told apart."""
    fair = [rule.id for rule in policy.rules if rule.fair is not None and rule.mode != "off"]
    if fair:
        yield f"fair queues are not simulated: {', '.join(fair)}"
    after = [rule.id for rule in policy.rules if rule.cost.after is not None]
    if after:
        yield f"what requests cost beyond their entry is not simulated: {', '.join(after)}"
    if policy.pressure is not None:
        yield "limits are not lowered under pressure"
    if delayed:
        yield f"{delayed:,} of the allowed requests were delayed to wait for their turn in a queue"
    if latency_ns is not None:
        yield (
            f"requests whose time the trace does not tell were served for "
            f"{latency_ns / MILLISECOND:g} ms"
        )
    if not is_exact:
        yield (
            f"more than {MOST_KEYS:,} keys under a rule: how many there are is estimated, to 2.5%; "
            "figures of single keys are the least that they were"
        )
