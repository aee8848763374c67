"""`headgate rules explain`: what a policy does with a request, and why."""

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

_USUAL_PEER: Final = "127.0.0.1"
_MEMORY: Final = "memory://"
_MOST_REPEATED: Final = 100_000
_DESCRIPTION: Final = """\
Say what a policy does with a request: which rules are for it and why the others are not, whose
counters, what is left of which limits, and what would be sent.

It only looks. Counters are those of a store that nobody has asked yet, unless you name one with
--store. Secrets are shown hashed, as they stand in keys; if your service hashes them with a salt,
set HEADGATE_SALT to it, or you will look at other counters."""
_EXAMPLES: Final = """\
examples:
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4 --repeat 6      what the sixth gets
  headgate rules explain rules.yaml /api/v1/users -H 'x-api-key: k' --tier paid
  headgate rules explain rules.yaml 'GET https://example.com/api' --store redis://localhost:6379/0

exit status: 0 it would be allowed, 1 it would be refused, 2 wrong usage or no such policy"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the policy: a file, a directory, - for stdin")
    parser.add_argument("request", metavar="REQUEST", help="'POST /login', '/login' (GET) or a URL")
    _add_many(parser, "-H", "--header", metavar="'NAME: VALUE'", meaning="a header")
    _add_many(parser, "--cookie", metavar="NAME=VALUE", meaning="a cookie")
    _add_many(parser, "--attribute", metavar="NAME=VALUE", meaning="what an app may add of its own")
    parser.add_argument(
        "--ip",
        metavar="ADDRESS",
        default=_USUAL_PEER,
        help=f"where the connection comes from, {_USUAL_PEER} if not said",
    )
    parser.add_argument("--host", metavar="NAME", help="the host that is asked")
    parser.add_argument("--tier", metavar="NAME", help="the caller's tier, wherever it is said")
    parser.add_argument(
        "--cost", metavar="N", type=_cost, help="what it costs, whatever the rules say"
    )
    parser.add_argument(
        "--repeat",
        metavar="N",
        type=_times,
        default=1,
        help="what the last of N such requests gets, all sent at the same moment",
    )
    parser.add_argument("--all", action="store_true", help="list all rules that do not match")
    add_json(parser)
    _add_settings(parser)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.rules.texts import tell, texts_at
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.loader import examine_policies

    examined = examine_policies(texts_at(arguments.path))
    if examined.policy is None:
        tell(examined.problems)
        raise OptionError(f"{arguments.path!r} has errors, so there is nothing to explain")
    salt = os.environ.get("HEADGATE_SALT", "").encode("utf-8", "surrogateescape")
    engine = CompiledPolicy(
        examined.policy, salt=salt, namespace=arguments.namespace, clock=time.time_ns
    )
    explanation = _explanation(engine, arguments)
    print(_printed(explanation, arguments))
    return ExitStatus.DONE if explanation.verdict.allowed else ExitStatus.NO


COMMAND: Final = Command(
    "rules explain",
    "say what a policy does with a request",
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
        meaning="look at the counters in there, without touching them",
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
    from headgate.cli.rules.explanation import Enquirer
    from headgate.cli.rules.request_arguments import request_of, with_tier
    from headgate.stores.factory import open_store

    request = request_of(arguments)
    if arguments.tier is not None:
        request = with_tier(request, arguments.tier, engine.policy.identity.sources["tier"])
    if _is_live(arguments) and arguments.repeat > 1:
        raise OptionError("--repeat would use up the counters in --store; add --store memory://")
    now_ns = time.time_ns()
    clock = None if _is_live(arguments) else lambda: now_ns
    with closing(open_store(arguments.store, clock)) as store:
        enquirer = Enquirer(engine, store, now_ns)
        for _ in range(arguments.repeat - 1):
            enquirer.spend(request, cost=arguments.cost)
        ask = enquirer.foresee if _is_live(arguments) else enquirer.spend
        return enquirer.explain(request, ask(request, cost=arguments.cost))


def _printed(explanation: Explanation, arguments: Namespace) -> str:
    from headgate.cli.rules.explain_output import portrait, record

    if arguments.json:
        return record(explanation)
    return portrait(
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
        raise ArgumentTypeError(f"{number} are too many; at most {_MOST_REPEATED}")
    return number
