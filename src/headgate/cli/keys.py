"""`headgate keys`: inspect counters.

List the counters in a store, or show all those of one key.

It only reads. It scans the keyspace of every primary in small steps, which does not block other
clients but takes a while in a large store.

examples:
  headgate keys --store redis://localhost:6379/0
  headgate keys --store redis+cluster://host1:6379,host2:6379 --namespace shop 'user:*'
  headgate keys --show user:42 --json          with the URL in HEADGATE_STORE

exit status: 0 found, 1 none found, 2 wrong usage or no response from the store
"""

from __future__ import annotations

import json
import re
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.command import JSON, Command, ExitStatus, argument, whole_number
from headgate.errors import OptionError, StoreURLError
from headgate.stores.base import checked_key
from headgate.stores.factory import SCHEMES
from headgate.terminal import bold, duration, printable, require_rich, table
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from headgate.stores.redis.inspect import Counter, Held, State


_HEADER: Final = ("KEY", "NAMESPACE", "COUNTER", "KIND", "LIMIT", "IN USE", "AS NEW IN", "TTL")


def rows(counters: Sequence[Counter]) -> str:
    """A table with a row for each counter."""
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
    """The key, or the digest of a long one."""
    return f"{one.name.key} (digest)" if one.name.is_hashed else printable(one.name.key)


def _in_use(state: State) -> str:
    used = f"{state.in_use}" if state.quota is None else f"{state.in_use} of {state.quota}"
    return f"{used}, {state.held} held" if state.held else used


def details(counters: Sequence[Counter]) -> str:
    """All figures of each counter, grouped by key and namespace."""
    parts = []
    heading = ""
    for one in counters:
        here = f"{_key(one)} in namespace {printable(one.name.namespace or '-')}"
        parts.append(_detail(one) if here == heading else f"{bold(here)}\n\n{_detail(one)}")
        heading = here
    return "\n\n".join(parts)


def _detail(one: Counter) -> str:
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


_DEFAULT_LIMIT: Final = 100
_STORE_URL: Final = re.compile(f"(?:{'|'.join(map(re.escape, SCHEMES))})://", re.IGNORECASE)


_ARGUMENTS: Final = (
    argument(
        "--store",
        "URL",
        "the store with the counters: redis://host:6379/0",
        variable="HEADGATE_STORE",
    ),
    argument(
        "--namespace",
        "NAME",
        "only the counters of limiters with this namespace",
        variable="HEADGATE_NAMESPACE",
    ),
    argument(
        "--limit",
        "N",
        f"the most counters to list (default {_DEFAULT_LIMIT})",
        variable="HEADGATE_KEYS_LIMIT",
        type=whole_number,
        default=_DEFAULT_LIMIT,
    ),
    JSON,
    argument("--show", "KEY", "all counters of this key, with open reservations and slots"),
    argument("pattern", "PATTERN", "only keys like this: * ? [abc] [!abc]", nargs="?"),
)


def _run(arguments: Namespace) -> ExitStatus:
    if not arguments.json and arguments.show is None:
        require_rich()
    counters, has_more = _find(arguments)
    if arguments.json:
        print(as_json(counters, has_more=has_more))
    elif not counters:
        print(_nothing(arguments), file=sys.stderr)
    elif arguments.show is None:
        print(rows(counters))
    else:
        print(details(counters))
    if has_more and not arguments.json:
        more = f"there are more than {arguments.limit}; narrow the pattern or raise --limit"
        sys.stdout.flush()
        print(more, file=sys.stderr)
    return ExitStatus.DONE if counters else ExitStatus.NO


COMMAND: Final = Command("keys", __doc__, _ARGUMENTS, _run)


def _find(arguments: Namespace) -> tuple[list[Counter], bool]:
    """The counters in the order of the output, and True if there are more."""
    url = _checked_url(arguments)
    try:
        from headgate.stores.redis.inspect import Search, find_counters, open_primaries
        from headgate.stores.redis.url import parse_redis_url
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"redis", "hiredis"}:
            raise
        raise StoreURLError(
            f"a Redis store needs the package {error.name!r}: pip install 'headgate[redis]'"
        ) from error
    search = Search(arguments.namespace, arguments.pattern, arguments.show)
    with open_primaries(parse_redis_url(url)) as primaries:
        found = list(islice(find_counters(primaries, search), arguments.limit + 1))
    shown = sorted(found[: arguments.limit], key=_order)
    return shown, len(found) > arguments.limit


def _checked_url(arguments: Namespace) -> str:
    """The URL of the store. Raises `HeadgateError` for contradictory arguments."""
    if arguments.pattern is not None:
        if arguments.show is not None:
            raise OptionError("--show KEY and PATTERN exclude each other; pass one of them")
        if _STORE_URL.match(arguments.pattern):
            raise OptionError("PATTERN looks like the URL of a store; write --store before it")
    if arguments.show is not None:
        checked_key(arguments.show)
    url: str | None = arguments.store
    if not url:
        raise StoreURLError("no store; pass --store redis://host:6379/0, or set HEADGATE_STORE")
    if url.lower().startswith("memory:"):
        raise StoreURLError(
            "the counters of memory:// are inside the process that uses them and cannot be listed; "
            "expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
        )
    return url


def _order(one: Counter) -> tuple[str, str, bool, int, str]:
    name = one.name
    place = sys.maxsize if name.place is None else name.place
    return name.namespace or "", name.key, name.is_hashed, place, name.counter


def _nothing(arguments: Namespace) -> str:
    if arguments.show is not None:
        what = f"no counter of {arguments.show!r}"
    elif arguments.pattern is not None:
        what = f"no counter of a key like {arguments.pattern!r}"
    else:
        what = "no counter"
    return what if arguments.namespace is None else f"{what} in namespace {arguments.namespace!r}"
