"""What to say when the store cannot be asked: each part as its rule says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.decisions import decide_without_store
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls.steps import Bundle, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.service.rls.asked import Part
    from headgate.service.rls.steps import Places, Said
    from headgate.stores.memory import MemoryStore


class Outage:
    """Decides without the store; rules that are `local` have counters in *local*, which are those
    of this process for every way into it."""

    def __init__(self, local: MemoryStore) -> None:
        self._local = local

    def decide(
        self, parts: Sequence[Part], silent: Places, said: Said, *, is_open: bool = True
    ) -> None:
        """Note in *said* what comes of the parts in *silent*.

        All or nothing, as ever: if another part refuses, those that are `local` are only looked at.
        Raises `CallError` if an outage is to be an error.
        """
        if any(parts[n].on_failure == "error" for n in silent):
            raise CallError(Code.UNAVAILABLE, "the store of the counters could not be asked")
        for n in silent:
            part = parts[n]
            asked = [(check.key, check.limit) for check in part.checks]
            said[n] = decide_without_store(
                "fail_closed" if part.on_failure == "fail_closed" else "fail_open", asked
            )
        others = all(_is_open(part, said[n]) for n, part in enumerate(parts))
        self._decide_here(parts, silent, said, is_open=is_open and others)

    def _decide_here(
        self, parts: Sequence[Part], silent: Places, said: Said, *, is_open: bool
    ) -> None:
        here = [n for n in silent if parts[n].on_failure == "local"]
        looks = [n for n in here if parts[n].verb == "look"]
        self._take(parts, Step(tuple([Bundle((n,), consume=False) for n in looks])), said)
        consume = is_open and all(_is_open(parts[n], said[n]) for n in looks)
        takers = [n for n in here if parts[n].verb == "take"]
        together = tuple([n for n in takers if parts[n].role == "decides"])
        bundles = [Bundle((n,), consume) for n in takers if n not in together]
        if together:
            bundles.append(Bundle(together, consume))
        reports = tuple([n for n in here if parts[n].verb == "report"])
        refunds = tuple([n for n in here if parts[n].verb == "refund"])
        self._take(parts, Step(tuple(bundles), reports, refunds), said)

    def _take(self, parts: Sequence[Part], step: Step, said: Said) -> None:
        replies = [self._local.run(operation) for operation in step.operations(parts)]
        step.hear(parts, replies, said, source="local")


def _is_open(part: Part, decision: object) -> bool:
    """Whether *part* does not keep the others from being charged."""
    return part.role != "decides" or not part.is_question or decision is None or bool(decision)
