"""How counters are shown: as rows of a table, one after the other in full, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.terminal import bold, duration, printable, table
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.stores.redis.inspection.inspecting import Counter
    from headgate.stores.redis.inspection.reading import Held, State

_HEADER: Final = ("KEY", "NAMESPACE", "COUNTER", "KIND", "LIMIT", "IN USE", "AS NEW IN", "TTL")


def rows(counters: Sequence[Counter]) -> str:
    """A table with a line for each counter."""
    return table(_HEADER, [_row(one) for one in counters])


def _row(one: Counter) -> tuple[str, ...]:
    state = one.state
    return (
        _key(one),
        printable(one.name.namespace or "-"),
        printable(one.name.counter),
        state.kind,
        state.limit or "-",
        _in_use(state),
        duration(state.as_new_in_ns),
        duration(one.ttl_ns),
    )


def _key(one: Counter) -> str:
    """The key, or what is known of a long one."""
    return f"{one.name.key} (digest)" if one.name.is_hashed else printable(one.name.key)


def _in_use(state: State) -> str:
    used = f"{state.in_use}" if state.quota is None else f"{state.in_use} of {state.quota}"
    return f"{used}, {state.held} held" if state.held else used


def portraits(counters: Sequence[Counter]) -> str:
    """All there is to know of each counter; those of one key and namespace under one heading."""
    parts = []
    heading = ""
    for one in counters:
        here = f"{_key(one)} in namespace {printable(one.name.namespace or '-')}"
        parts.append(_portrait(one) if here == heading else f"{bold(here)}\n\n{_portrait(one)}")
        heading = here
    return "\n\n".join(parts)


def _portrait(one: Counter) -> str:
    state = one.state
    lines = [
        f"  {printable(one.name.counter)}: {' '.join(filter(None, (state.kind, state.limit)))}",
        f"    in use     {_in_use(state)}",
        f"    as new in  {duration(state.as_new_in_ns)}",
        f"    ttl        {duration(one.ttl_ns)}",
        f"    redis key  {printable(_text(one.redis_name))}",
    ]
    lines += [
        f"    reserved   {held.amount} for {duration(held.ends_in_ns)} by {printable(held.name)}"
        for held in state.reservations
    ]
    lines += [
        f"    slot       for {duration(held.ends_in_ns)} by {printable(held.name)}{_of_part(held)}"
        for held in state.leases
    ]
    return "\n".join(lines)


def _of_part(held: Held) -> str:
    return "" if held.part is None else f" of {printable(held.part)}"


def as_json(counters: Sequence[Counter], *, has_more: bool) -> str:
    """Counters as JSON. Times are in seconds."""
    shown = {"counters": [_record(one) for one in counters], "more": has_more}
    return json.dumps(shown, indent=2)


def _record(one: Counter) -> dict[str, Any]:
    name, state = one.name, one.state
    return {
        "key": name.key,
        "is_digest": name.is_hashed,
        "namespace": name.namespace,
        "counter": name.counter,
        "place": name.place,
        "kind": state.kind,
        "limit": state.limit,
        "quota": state.quota,
        "in_use": state.in_use,
        "held": state.held,
        "as_new_in": seconds_at_least(state.as_new_in_ns),
        "ttl": seconds_at_least(one.ttl_ns),
        "redis_key": _text(one.redis_name),
        "reservations": [{"amount": held.amount, **_held(held)} for held in state.reservations],
        "slots": [{**_held(held), "part": held.part} for held in state.leases],
    }


def _held(held: Held) -> dict[str, Any]:
    return {"name": held.name, "ends_in": seconds_at_least(held.ends_in_ns)}


def _text(redis_name: bytes) -> str:
    return redis_name.decode("utf-8", "surrogatepass")
