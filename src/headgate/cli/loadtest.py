"""`headgate loadtest`: send bounded traffic and check that a limit holds."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json, whole_number

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from fractions import Fraction

    from headgate.loadtest.report import Trial

_DESCRIPTION: Final = """\
Send requests to a limited service for some seconds and check that the limit holds: that it did not
allow more than it can allow, taking delays of the network into account.

Responses from 200 to 299 count as allowed, 429 as denied. It asks before it sends requests to
another machine. Concurrency limits and queues cannot be tested.

Bounds: 5,000/s, 60 s and 100,000 requests; with --yes 20,000/s, 600 s and 2,000,000, never more."""
_EXAMPLES: Final = """\
examples:
  headgate loadtest http://127.0.0.1:8080/api --rule 100/s
  headgate loadtest http://127.0.0.1:8080/login --method POST --rule '5/minute sliding_window_log'
  headgate loadtest http://127.0.0.1:8080/api --rule per-tenant --rules rules.yaml --tier paid
  headgate loadtest http://127.0.0.1:8080/api --rule per-key --admin http://127.0.0.1:8090 \\
      --key-header 'x-api-key=loadtest-{run}-{n}' --callers 5

exit status: 0 the limit holds, 1 it does not, 2 no verdict, or wrong usage"""


def _time(text: str) -> int:
    from headgate.cli.loadtest_run import time_ns

    return time_ns(text)


def _rate(text: str) -> Fraction:
    from headgate.cli.loadtest_run import rate

    return rate(text)


def _status(text: str) -> int:
    from headgate.cli.loadtest_run import status

    return status(text)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="the target; {n} and {run} as in --key-header")
    parser.add_argument(
        "--rule", required=True, metavar="RULE", help="a limit, '100/s burst 20', or a rule's id"
    )
    parser.add_argument("--rules", metavar="PATH", help="the policy with the rule")
    parser.add_argument(
        "--admin", metavar="URL", help="a service with the rule; its token is HEADGATE_ADMIN_TOKEN"
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with the token")
    parser.add_argument("--tier", metavar="NAME", help="the tier of the limits")
    parser.add_argument("--cost", metavar="N", type=whole_number, help="the cost of a request")
    parser.add_argument(
        "--overshoot",
        metavar="N",
        type=whole_number,
        help="units that the rule may exceed its limit by",
    )
    _add_request(parser)
    _add_load(parser)
    parser.add_argument(
        "--yes-really", metavar="HOST", help="send requests to this host without asking"
    )
    parser.add_argument("--yes", action="store_true", help="allow the higher bounds")
    add_json(parser)


def _add_request(parser: ArgumentParser) -> None:
    parser.add_argument("--method", metavar="NAME", help="GET; POST with --data")
    parser.add_argument(
        "--header", "-H", metavar="NAME:VALUE", action="append", default=[], help="repeatable"
    )
    parser.add_argument("--data", metavar="TEXT", help="the body, or @FILE")
    parser.add_argument(
        "--key-header",
        metavar="NAME=VALUE",
        help="a header; {n} is the number of the caller, {run} an id of the run",
    )
    parser.add_argument(
        "--callers",
        metavar="N",
        type=whole_number,
        default=1,
        help="the number of callers, each with its own limit",
    )
    parser.add_argument(
        "--ok",
        metavar="STATUS",
        type=_status,
        action="append",
        default=[],
        help="another status that counts as allowed: 404",
    )
    parser.add_argument("--insecure", action="store_true", help="accept any certificate")


def _add_load(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--duration",
        metavar="TIME",
        type=_time,
        help="default: twice the refill time, from 10s to 60s",
    )
    parser.add_argument(
        "--rate", metavar="N/s", type=_rate, help="in all; default: twice the limit"
    )
    parser.add_argument(
        "--connections", metavar="N", type=whole_number, help="the most requests in flight"
    )
    parser.add_argument("--baseline", metavar="PATH", help="a path without limits, for comparison")
    parser.add_argument(
        "--clock-error",
        metavar="TIME",
        type=_time,
        help="the error of the server's clock (default 50ms on this machine, else 1s)",
    )


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.loadtest_run import run_trial
    from headgate.loadtest.report import text_report

    report = run_trial(_trial(arguments), is_watched=not arguments.json)
    text = json.dumps(report.as_json(), indent=2) if arguments.json else text_report(report)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the exit status is still right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    holds = report.judgement.holds
    if holds is None:
        return ExitStatus.WRONG
    return ExitStatus.DONE if holds else ExitStatus.NO


COMMAND: Final = Command(
    "loadtest",
    "check that a limit holds under load",
    _DESCRIPTION,
    _EXAMPLES,
    _add_arguments,
    _run,
)


def _trial(arguments: Namespace) -> Trial:
    """The test to run. Raises `OptionError`, also if the user declines."""
    from headgate.cli import loadtest_run as inputs
    from headgate.loadtest.judgement import CLOCK_ERROR_NS
    from headgate.loadtest.options import addresses_of, are_of_this_machine, load_for
    from headgate.loadtest.report import FAR_CLOCK_ERROR_NS, Trial

    aim, target = inputs.aim(arguments), inputs.target(arguments)
    load = load_for(
        aim,
        duration_ns=arguments.duration,
        rate=arguments.rate,
        callers=arguments.callers,
        connections=arguments.connections,
    )
    load.check(is_confirmed=arguments.yes)
    addresses = addresses_of(target)
    is_here = are_of_this_machine(addresses)
    if not is_here:
        inputs.ask(target, load, arguments.yes_really)
    return Trial(
        target,
        addresses,
        aim,
        load,
        allowed=frozenset(arguments.ok),
        baseline=arguments.baseline,
        clock_error_ns=arguments.clock_error or (CLOCK_ERROR_NS if is_here else FAR_CLOCK_ERROR_NS),
        is_verified=not arguments.insecure,
    )
