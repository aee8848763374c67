"""`headgate keys`: the counters of a store, listed, or all those of one key."""

from __future__ import annotations

import re
import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.cli.command import (
    Command,
    ExitStatus,
    add_json,
    add_setting,
    add_store,
    whole_number,
)
from headgate.cli.counters import as_json, portraits, rows
from headgate.errors import OptionError, StoreURLError
from headgate.stores.opening import SCHEMES
from headgate.stores.port import checked_key

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from headgate.stores.redis.inspection.inspecting import Counter

_USUAL_LIMIT: Final = 100
_STORE_URL: Final = re.compile(f"(?:{'|'.join(map(re.escape, SCHEMES))})://", re.IGNORECASE)
_DESCRIPTION: Final = """\
List the counters in a store, or show all those of one key.

It only reads. It goes through the whole keyspace a step at a time, on every primary, and holds
nobody up; in a large store that takes a while."""
_EXAMPLES: Final = """\
examples:
  headgate keys --store redis://localhost:6379/0
  headgate keys --store redis+cluster://host1:6379,host2:6379 --namespace shop 'user:*'
  headgate keys --show user:42 --json          with the store's URL in HEADGATE_STORE

exit status: 0 found, 1 there is none, 2 wrong usage or no answer from the store"""


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    add_setting(
        parser,
        "--namespace",
        variable="HEADGATE_NAMESPACE",
        metavar="NAME",
        meaning="only the counters of limiters with this namespace",
    )
    add_setting(
        parser,
        "--limit",
        variable="HEADGATE_KEYS_LIMIT",
        metavar="N",
        meaning=f"how many counters to list at most, {_USUAL_LIMIT} if not said",
        type=whole_number,
        default=_USUAL_LIMIT,
    )
    add_json(parser)
    parser.add_argument(
        "--show", metavar="KEY", help="all counters of this key, with open reservations and slots"
    )
    parser.add_argument(
        "pattern", metavar="PATTERN", nargs="?", help="only keys like this: * ? [abc] [!abc]"
    )


def _run(arguments: Namespace) -> ExitStatus:
    counters, has_more = _find(arguments)
    if arguments.json:
        print(as_json(counters, has_more=has_more))
    elif not counters:
        print(_nothing(arguments), file=sys.stderr)
    elif arguments.show is None:
        print(rows(counters))
    else:
        print(portraits(counters))
    if has_more and not arguments.json:
        more = f"there are more than {arguments.limit}: narrow the pattern, or raise --limit"
        sys.stdout.flush()
        print(more, file=sys.stderr)
    return ExitStatus.DONE if counters else ExitStatus.NO


COMMAND: Final = Command("keys", "look at counters", _DESCRIPTION, _EXAMPLES, _add_arguments, _run)


def _find(arguments: Namespace) -> tuple[list[Counter], bool]:
    """The counters asked for, in the order to show them, and whether there are more."""
    url = _checked_url(arguments)
    try:
        from headgate.stores.redis.inspection.inspecting import Search, find_counters
        from headgate.stores.redis.inspection.primaries import open_primaries
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
    """The store's URL; raises if it, or what is looked for, makes no sense."""
    if arguments.pattern is not None:
        if arguments.show is not None:
            raise OptionError("--show KEY is one key, PATTERN is many: give one of them")
        if _STORE_URL.match(arguments.pattern):
            raise OptionError("PATTERN looks like a store's URL; write --store before it")
    if arguments.show is not None:
        checked_key(arguments.show)
    url: str | None = arguments.store
    if not url:
        raise StoreURLError("which store? Give --store redis://host:6379/0, or set HEADGATE_STORE")
    if url.lower().startswith("memory:"):
        raise StoreURLError(
            "the counters of memory:// live inside the process that made them, where nobody else "
            "can look; expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
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
