"""`headgate rules explain`: the decision of a policy on a request, and the reasons."""

from __future__ import annotations

import os
import time
from argparse import ArgumentTypeError
from contextlib import closing
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json, add_setting, whole_number
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from headgate.cli.rules.explanation import Explanation
    from headgate.policy.compiled import CompiledPolicy

_DEFAULT_PEER: Final = "127.0.0.1"
_MEMORY: Final = "memory://"
_MOST_REPEATED: Final = 100_000
_DESCRIPTION: Final = """\
Explain the decision of a policy on a request: the rules that match and why others do not, the keys
of the counters, the rest of each limit, and the response.

It changes no counters. They are empty, unless you name a store with --store. Secrets are shown
hashed, the same as in keys; if your service hashes them with a salt, set HEADGATE_SALT to it, or
you will see other counters."""
_EXAMPLES: Final = """\
examples:
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4 --repeat 6
  headgate rules explain rules.yaml /api/v1/users -H 'x-api-key: k' --tier paid
  headgate rules explain rules.yaml 'GET https://example.com/api' --store redis://localhost:6379/0

exit status: 0 allowed, 1 denied, 2 wrong usage or an unreadable policy"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the policy: a file, a directory, - for stdin")
    parser.add_argument("request", metavar="REQUEST", help="'POST /login', '/login' (GET) or a URL")
    _add_many(parser, "-H", "--header", metavar="'NAME: VALUE'", meaning="a header")
    _add_many(parser, "--cookie", metavar="NAME=VALUE", meaning="a cookie")
    _add_many(parser, "--attribute", metavar="NAME=VALUE", meaning="an attribute set by the app")
    parser.add_argument(
        "--ip",
        metavar="ADDRESS",
        default=_DEFAULT_PEER,
        help=f"the address of the peer (default {_DEFAULT_PEER})",
    )
    parser.add_argument("--host", metavar="NAME", help="the host of the request")
    parser.add_argument("--tier", metavar="NAME", help="the tier of the caller")
    parser.add_argument(
        "--cost", metavar="N", type=_cost, help="the cost, instead of the one by the rules"
    )
    parser.add_argument(
        "--repeat",
        metavar="N",
        type=_times,
        default=1,
        help="explain the last of N such requests at the same time",
    )
    parser.add_argument("--all", action="store_true", help="list all rules that do not match")
    add_json(parser)
    _add_settings(parser)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.rules.texts import print_problems, texts_at
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.loader import examine_policies

    examined = examine_policies(texts_at(arguments.path))
    if examined.policy is None:
        print_problems(examined.problems)
        raise OptionError(f"{arguments.path!r} is invalid, so there is nothing to explain")
    salt = os.environ.get("HEADGATE_SALT", "").encode("utf-8", "surrogateescape")
    engine = CompiledPolicy(
        examined.policy, salt=salt, namespace=arguments.namespace, clock=time.time_ns
    )
    explanation = _explanation(engine, arguments)
    print(_printed(explanation, arguments))
    return ExitStatus.DONE if explanation.verdict.allowed else ExitStatus.NO


COMMAND: Final = Command(
    "rules explain",
    "explain the decision on a request",
    _DESCRIPTION,
    _EXAMPLES,
    _add_arguments,
    _run,
)


def _add_many(parser: ArgumentParser, *flags: str, metavar: str, meaning: str) -> None:
    parser.add_argument(
        *flags,
        metavar=metavar,
        action="append",
        default=[],
        help=f"{meaning}; may be repeated",
    )


def _add_settings(parser: ArgumentParser) -> None:
    add_setting(
        parser,
        "--store",
        variable="HEADGATE_STORE",
        metavar="URL",
        meaning="read the counters in this store, without changing them",
        default=_MEMORY,
    )
    add_setting(
        parser,
        "--namespace",
        variable="HEADGATE_NAMESPACE",
        metavar="NAME",
        meaning="the namespace of the counters in the store",
        default="headgate",
    )


def _explanation(engine: CompiledPolicy, arguments: Namespace) -> Explanation:
    from headgate.cli.rules.explanation import Explainer
    from headgate.cli.rules.request_arguments import request_of, with_tier
    from headgate.stores.factory import open_store

    request = request_of(arguments)
    if arguments.tier is not None:
        request = with_tier(request, arguments.tier, engine.policy.identity.sources["tier"])
    if _is_live(arguments) and arguments.repeat > 1:
        raise OptionError("--repeat would charge the counters in --store; add --store memory://")
    now_ns = time.time_ns()
    clock = None if _is_live(arguments) else lambda: now_ns
    with closing(open_store(arguments.store, clock)) as store:
        explainer = Explainer(engine, store, now_ns)
        for _ in range(arguments.repeat - 1):
            explainer.hit(request, cost=arguments.cost)
        ask = explainer.peek if _is_live(arguments) else explainer.hit
        return explainer.explain(request, ask(request, cost=arguments.cost))


def _printed(explanation: Explanation, arguments: Namespace) -> str:
    from headgate.cli.rules.explain_json import explain_json
    from headgate.cli.rules.explain_text import explain_text

    if arguments.json:
        return explain_json(explanation)
    return explain_text(
        explanation,
        nth=arguments.repeat,
        is_live=_is_live(arguments),
        shows_all=arguments.all,
    )


def _is_live(arguments: Namespace) -> bool:
    return not arguments.store.lower().startswith("memory:")


def _cost(text: str) -> int:
    return 0 if text == "0" else whole_number(text)


def _times(text: str) -> int:
    number = whole_number(text)
    if number > _MOST_REPEATED:
        raise ArgumentTypeError(f"{number} is too many; at most {_MOST_REPEATED}")
    return number
