"""Several workers' measures as one text: what `/metrics` answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.observability.exposition import Told, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.observability.exposition import Labels
    from headgate.service.live.cells import Counted, Name
    from headgate.service.live.snapshot import Family, Snapshot

DECISIONS: Final = "decisions"
"""The measure whose samples are the cells: told as numbers, and written here."""

_NAME: Final = f"headgate_{DECISIONS}"


class Writer:
    """Writes measures of workers; the names and labels of their many cells only once."""

    def __init__(self) -> None:
        self._begun: dict[Labels, tuple[list[Name], list[str]]] = {}

    def text(self, heard: Iterable[tuple[Snapshot, Labels, bool]]) -> str:
        """As Prometheus reads it: of each worker that was *heard* of its measures, the labels that
        mark it, and whether it is here. Of one that is not, only what was counted is told."""
        by_name: dict[str, list[tuple[Family, str]]] = {}
        for snapshot, marks, is_here in heard:
            for family in snapshot.families():
                if is_here or family.kind != "gauge":
                    body = family.body
                    if family.name == _NAME:
                        body = self._cells(marks, snapshot.counted())
                    by_name.setdefault(family.name, []).append((family, body))
        parts: list[str] = []
        for _, together in sorted(by_name.items()):
            if any(body for _, body in together):
                parts += [together[0][0].head, "\n", *(body for _, body in together)]
        return "".join(parts)

    def _cells(self, marks: Labels, counted: Counted) -> str:
        names, begun = self._begun.get(marks, ([], []))
        if names != counted.names:
            begun = _begun(marks, counted.names)
            self._begun[marks] = counted.names, begun
        return "".join([f"{start}{n}\n" for start, n in zip(begun, counted.counts, strict=True)])


def _begun(marks: Labels, names: Iterable[Name]) -> list[str]:
    """The lines of cells up to their numbers."""
    samples = [
        ("_total", (*marks, ("outcome", outcome), ("rule", rule), ("source", source)), 0.0)
        for rule, outcome, source in names
    ]
    _, _, *lines, _ = text_of([Told(_NAME, "counter", "", tuple(samples))]).split("\n")
    return [line.removesuffix("0") for line in lines]
