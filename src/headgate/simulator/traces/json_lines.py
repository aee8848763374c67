"""JSON lines: an object for each request, as programs and gateways write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.simulator.traces.formats import Format
from headgate.simulator.traces.problems import BrokenLineError
from headgate.simulator.traces.rows import Layout
from headgate.simulator.traces.times import epoch, reader_of, took_ns

if TYPE_CHECKING:
    from headgate.simulator.traces.formats import Taken
    from headgate.simulator.traces.names import Wanted
    from headgate.simulator.traces.times import When
    from headgate.simulator.traffic import Asked

_MOST_SHAPES: Final = 256
_decode: Final = json.JSONDecoder().decode


class JsonLines(Format):
    """Objects; not all need have the same names."""

    name = "jsonl"

    def __init__(self, wanted: Wanted | None) -> None:
        super().__init__()
        self._wanted = wanted
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._when: When | None = None

    def take(self, line: bytes) -> Taken:
        try:
            found = _decode(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BrokenLineError("it is no JSON") from error
        if type(found) is not dict:
            raise BrokenLineError("it is no JSON object")
        names = tuple(found)
        layout = self._layouts.get(names) or self._new_layout(names)
        row = list(found.values())
        if layout.nested is not None:
            row[layout.nested] = layout.flat(row[layout.nested])
        took = None
        if layout.took is not None:
            took = took_ns(_bytes(row[layout.took]), layout.unit_ns)
        try:
            alike = layout, layout.alike(row)
            hash(alike)
        except TypeError as error:
            raise BrokenLineError("it has lists or objects where texts were expected") from error
        return self._at(row[layout.time]), alike, took

    def asked(self, alike: Any) -> Asked:
        layout, values = alike
        found: Asked = layout.asked(values)
        return found

    def _new_layout(self, names: tuple[str, ...]) -> Layout:
        if len(self._layouts) >= _MOST_SHAPES:
            self._layouts.clear()
        layout = self._layouts[names] = Layout(names, self._wanted)
        return layout

    def _at(self, value: object) -> int:
        if type(value) is float or type(value) is int:
            return epoch(value)
        text = _bytes(value)
        if self._when is None:
            self._when = reader_of(text)
        return self._when(text)


def _bytes(value: object) -> bytes:
    return b"" if value is None else str(value).encode("utf-8", "replace")
