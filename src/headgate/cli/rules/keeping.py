"""How a rule is kept, in words: how exactly, and what happens while the store is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.cli.terminal import duration
from headgate.limits.accuracy import LEAST_CAP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from headgate.limits import Accuracy, Limit
    from headgate.rules.model import Rule


def keeping_in_words(rule: Rule, limits: Sequence[Limit]) -> str | None:
    """How exactly *rule* keeps *limits*, and where else; None if exactly, and nowhere else."""
    parts = list(_accuracy(rule.accuracy, limits))
    if rule.across_regions:
        parts.append("other regions are told what is used")
    return "; ".join(parts) or None


def outage_in_words(rule: Rule) -> str:
    """What *rule* does while the store is gone."""
    share = rule.fallback_share
    part = "the limit" if share == 1 else f"{_percent(share)} of the limit"
    if rule.on_store_failure == "fail_closed":
        return "without the store it is refused (fail_closed)"
    if rule.on_store_failure == "local":
        return f"without the store each process keeps {part} by itself (local)"
    text = f"without the store it is let pass, up to {part} in each process (fail_open)"
    if rule.max_fail_open_ns is None:
        return text
    return f"{text}; after {duration(rule.max_fail_open_ns)}: {rule.after_fail_open}"


def _accuracy(accuracy: Accuracy, limits: Sequence[Limit]) -> Iterator[str]:
    if not accuracy.is_exact:
        yield _saving(accuracy, limits)
    if accuracy.remembers_ns:
        yield f"a refusal is remembered for up to {duration(accuracy.remembers_ns)}"


def _saving(accuracy: Accuracy, limits: Sequence[Limit]) -> str:
    caps = [cap for limit in limits if (cap := accuracy.cap(limit.quota)) is not None]
    if caps and max(caps) < LEAST_CAP:
        return f"exactly: {_percent(accuracy.max_overshoot)} of it is too little to take in advance"
    most = [f"{cap} over it in all" for cap in caps[:1]]
    if accuracy.batch is not None:
        most.append(f"{accuracy.batch} for each process")
    bound = f", at most {' and '.join(most)}" if most else ""
    if accuracy.sync_ns is not None:
        often = duration(accuracy.sync_ns)
        return f"each process decides by itself and tells the store every {often}{bound}"
    parts = f", in {accuracy.split} parts" if accuracy.split > 1 else ""
    return f"hot keys are served from units taken in advance{parts}{bound}"


def _percent(share: Fraction | None) -> str:
    return f"{float(share or 0) * 100:g}%"
