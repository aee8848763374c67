"""The metrics of a service as a golden file has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.golden.transcript import Transcript

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_UNSTABLE = {
    "headgate_decision_seconds_bucket": r"\d+",
    "headgate_decision_seconds_sum": r"[0-9.e-]+",
    "headgate_policy_digest": r"\d+",
}
_UNSTABLE_LABELS = {
    r'(?<=version=")\d[^"]*': "<version>",
    r'(?<=worker=")\d+': "<number>",
    r'(?<=store="127\.0\.0\.1:)\d+': "<port>",
}
"""The form of what differs from run to run, or with any change of the code."""


def record_metrics(
    call: str, text: str, transcript: Transcript, *, has_values: bool = True
) -> None:
    """Record *text*, what `/metrics` says: types, labels and values; HELP is for people."""
    found: dict[str, Any] = {}
    family: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, help_text = line.split(" ", 3)
            transcript.add_text(call, name, help_text)
            family = found[name] = {"type": None, "samples": {}}
        elif line.startswith("# TYPE "):
            family["type"] = line.split(" ", 3)[3]
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"{line!r} is no sample"
            name, labels, value = match.groups()
            sample = f"{name}{{{labels or ''}}}"
            for pattern, placeholder in _UNSTABLE_LABELS.items():
                sample = re.sub(pattern, placeholder, sample)
            family["samples"][sample] = _value(name, value) if has_values else "<value>"
    transcript.add(call, found)


def _value(name: str, value: str) -> str:
    form = _UNSTABLE.get(name)
    if form is None:
        return value
    assert re.fullmatch(form, value), f"{name} is {value}, expected {form}"
    return f"<{form}>"
