"""Dynamic metadata: what was asked, and what the configuration says of the limits that passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.service.rls.messages import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from headgate.service.rls.asked import Line
    from headgate.service.rls.reading import Call, Descriptor


def metadata_of(call: Call, passed: Iterable[Line]) -> bytes:
    """The `google.protobuf.Struct` for *call*, of which the lines in *passed* were not denied.

    Of what several say under one name the first counts; mappings are merged.
    """
    content: dict[str, object] = {
        "domain": call.domain,
        "descriptors": [_described(one) for one in call.descriptors],
    }
    if call.hits is not None:
        content["hitsAddend"] = call.hits
    merged: dict[str, object] = {}
    for line in passed:
        _merge(merged, line.metadata)
    if merged:
        content["metadata"] = merged
    struct = Struct()
    _fill(struct, content)
    written: bytes = struct.SerializeToString()
    return written


def _described(one: Descriptor) -> dict[str, object]:
    described: dict[str, object] = {"entries": [f"{key}={value}" for key, value in one.entries]}
    if one.limit is not None:
        described["limit"] = f"requests_per_unit:{one.limit.requests} unit:{one.limit.unit.upper()}"
    if one.hits is not None:
        described["hitsAddend"] = one.hits
    return described


def _merge(into: dict[str, object], other: Mapping[str, object]) -> None:
    for name, value in other.items():
        known = into.get(name)
        if name not in into:
            into[name] = _copied(value)
        elif isinstance(known, dict) and isinstance(value, Mapping):
            _merge(known, value)


def _copied(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return value


def _fill(struct: Any, content: Mapping[str, object]) -> None:
    for name, value in content.items():
        _set(struct.fields[name], value)


def _set(target: Any, value: object) -> None:
    if value is None:
        target.null_value = 0
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif isinstance(value, Mapping):
        target.struct_value.SetInParent()
        _fill(target.struct_value, value)
    elif isinstance(value, list | tuple):
        target.list_value.SetInParent()
        for each in value:
            _set(target.list_value.values.add(), each)
    else:
        # What a client sent need not be UTF-8, which is all that there is room for here.
        target.string_value = str(value).encode("utf-8", "replace").decode()
