"""Measures as they are told: values that can be kept, sent and merged, and Prometheus's text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[str, Labels, float]
"""What a name has at its end (nothing, `_total`, `_bucket`, `_sum`, `_count`), labels, a number."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Told:
    """All samples of one name, as they were at one moment."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]

    def marked(self, marks: Labels) -> Told:
        """The same, with the labels *marks* before their own."""
        if not marks:
            return self
        return replace(
            self, samples=tuple((end, marks + labels, value) for end, labels, value in self.samples)
        )


def text_of(families: Iterable[Told]) -> str:
    """All *families*, as Prometheus reads it. Those of one name stand together."""
    by_name: dict[str, list[Told]] = {}
    for family in families:
        by_name.setdefault(family.name, []).append(family)
    lines = []
    for name, together in sorted(by_name.items()):
        first = together[0]
        named = f"{name}_total" if first.kind == "counter" else name
        lines += [f"# HELP {named} {first.help}", f"# TYPE {named} {first.kind}"]
        for family in together:
            lines += [
                f"{name}{end}{_shown(labels)} {_number(value)}"
                for end, labels, value in family.samples
            ]
    return "\n".join([*lines, ""])


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    """*value* between quotes; of half a character, which no text can carry, a question mark."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode("utf-8")
    return value.translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
