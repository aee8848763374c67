"""What a more specific descriptor takes away from a general one.

In the original only the most specific descriptor counts. Of rules, all that match count. So a rule
made of a descriptor without a value is also about the values that stand beside it. That changes
nothing where those are limited at least as tightly themselves; elsewhere it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.rules.envoy.model import UNIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.rules.envoy.model import Descriptor, RateLimit
    from headgate.rules.envoy.tree import Node


def exceptions_to(way: Sequence[Node], top: Node) -> list[Descriptor]:
    """The descriptors that take requests away from the one at the end of *way*, which begins below
    *top*, and do not hold them as tightly."""
    own = way[-1].descriptor
    if own is None or own.shadow_mode:  # it denies nobody
        return []
    steps = [node.descriptor for node in way if node.descriptor is not None]
    return [
        rival.descriptor
        for index, level in enumerate((top, *way[:-1]))
        for rival in _rivals(level, way[index])
        if rival.descriptor is not None
        and not all(_is_as_tight(end, own) for end in _ends(rival, steps[index + 1 :]))
    ]


def _rivals(level: Node, step: Node) -> Iterator[Node]:
    """What comes before *step* on its *level* for some entries with its key."""
    if step.descriptor is not None and step.descriptor.value is None:
        yield from (node for node in level.all_next(step.descriptor.key) if node is not step)


def _ends(node: Node, rest: Sequence[Descriptor]) -> Iterator[Descriptor | None]:
    """Where requests that are at *node* can end when *rest* is what they must fit yet.

    None: nothing limits them, or a limit of which no rule is made, because of a pattern.
    """
    descriptor = node.descriptor
    if not rest or descriptor is None or descriptor.is_pattern:
        yield None if descriptor is None or descriptor.is_pattern else descriptor
        return
    following, is_sure = _following(node, rest[0])
    if not is_sure:
        yield None
    for each in following:
        yield from _ends(each, rest[1:])


def _following(node: Node, step: Descriptor) -> tuple[list[Node], bool]:
    """What requests that fit *step* can lead to from *node*, and whether they lead anywhere."""
    if step.value is None:
        return list(node.all_next(step.key)), step.key in node.below
    only = node.next(step.key, step.value)
    return ([], False) if only is None else ([only], True)


def _is_as_tight(end: Descriptor | None, own: Descriptor) -> bool:
    """Whether what *end* lets pass can never be too much for *own*."""
    limit = None if end is None else end.rate_limit
    if end is None or limit is None or own.rate_limit is None or end.shadow_mode:
        return False
    return limit.closed or _is_within(limit, own.rate_limit)


def _is_within(inner: RateLimit, outer: RateLimit) -> bool:
    """Whether all that *inner* lets pass in a window of *outer* fits in there."""
    if inner.unit is None or outer.unit is None:
        return outer.unit is None
    short, long = UNIT_SECONDS[inner.unit], UNIT_SECONDS[outer.unit]
    windows = 1 if short % long == 0 else long // short if long % short == 0 else long // short + 2
    return inner.requests_per_unit * windows <= outer.requests_per_unit
