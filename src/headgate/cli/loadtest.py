r"""`headgate loadtest`: check that a limit holds under load.

Send requests to a limited service for some seconds and check that the limit holds: that it did not
allow more than it can allow, taking delays of the network into account.

Responses from 200 to 299 count as allowed, 429 as denied. It asks before it sends requests to
another machine. Concurrency limits and queues cannot be tested.

Bounds: 5,000/s, 60 s and 100,000 requests; with --yes 20,000/s, 600 s and 2,000,000, never more.

examples:
  headgate loadtest http://127.0.0.1:8080/api --rule 100/s
  headgate loadtest http://127.0.0.1:8080/login --method POST --rule '5/minute sliding_window_log'
  headgate loadtest http://127.0.0.1:8080/api --rule per-tenant --rules rules.yaml --tier paid
  headgate loadtest http://127.0.0.1:8080/api --rule per-key --admin http://127.0.0.1:8090 \
      --key-header 'x-api-key=loadtest-{run}-{n}' --callers 5

exit status: 0 the limit holds, 1 it does not, 2 no verdict, or wrong usage
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import (
    JSON,
    Command,
    ExitStatus,
    argument,
    flag,
    pair,
    repeated,
    time_ns,
    whole_number,
)
from headgate.errors import NotationError, OptionError
from headgate.limits import parse_rate
from headgate.terminal import is_terminal, require_rich
from headgate.units import SECOND

if TYPE_CHECKING:
    from argparse import Namespace
    from fractions import Fraction

    from headgate.loadtest.client import Sender
    from headgate.loadtest.limit_under_test import LimitUnderTest
    from headgate.loadtest.report import LoadTest, Report
    from headgate.loadtest.target import Load, Target
    from headgate.policy.model import Policy
    from headgate.terminal import Update

_LARGEST_DATA: Final = 1_048_576
_OWN_HEADERS: Final = frozenset({"content-length", "transfer-encoding"})
"""Headers that the client sets."""
_TICK_S: Final = 0.25


def _rate(text: str) -> Fraction:
    try:
        return parse_rate(f"{text}/s" if text.isdecimal() else text)
    except NotationError as error:
        raise ArgumentTypeError(f"{text!r} is not a rate; expected one such as 200/s") from error


def _status(text: str) -> int:
    if text.isascii() and text.isdecimal() and 100 <= int(text) <= 599 and text != "429":
        return int(text)
    raise ArgumentTypeError(f"{text!r} cannot count as allowed; expected a status such as 404")


_ARGUMENTS: Final = (
    argument("url", "URL", "the target; {n} and {run} as in --key-header"),
    argument("--rule", "RULE", "a limit, '100/s burst 20', or a rule's id", required=True),
    argument("--rules", "PATH", "the policy with the rule"),
    argument("--admin", "URL", "a service with the rule; its token is HEADGATE_ADMIN_TOKEN"),
    argument("--token-file", "FILE", "a file with the token"),
    argument("--tier", "NAME", "the tier of the limits"),
    argument("--cost", "N", "the cost of a request", type=whole_number),
    argument("--overshoot", "N", "units that the rule may exceed its limit by", type=whole_number),
    argument("--method", "NAME", "GET; POST with --data"),
    repeated("--header -H", "NAME:VALUE", "repeatable", type=pair(":", "NAME:VALUE")),
    argument("--data", "TEXT", "the body, or @FILE"),
    argument(
        "--key-header",
        "NAME=VALUE",
        "a header; {n} is the number of the caller, {run} an id of the run",
        type=pair("=", "x-api-key=loadtest-{n}"),
    ),
    argument(
        "--callers",
        "N",
        "the number of callers, each with its own limit",
        type=whole_number,
        default=1,
    ),
    repeated("--ok", "STATUS", "another status that counts as allowed: 404", type=_status),
    flag("--insecure", "accept any certificate"),
    argument("--duration", "TIME", "default: twice the refill time, from 10s to 60s", type=time_ns),
    argument("--rate", "N/s", "in all; default: twice the limit", type=_rate),
    argument("--connections", "N", "the most requests in flight", type=whole_number),
    argument(
        "--clock-error",
        "TIME",
        "the error of the server's clock (default 50ms on this machine, else 1s)",
        type=time_ns,
    ),
    argument("--yes-really", "HOST", "send requests to this host without asking"),
    flag("--yes", "allow the higher bounds"),
    JSON,
)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.loadtest.report import text_report

    if not arguments.json:
        require_rich()
    report = _report(_load_test(arguments), is_watched=not arguments.json)
    text = json.dumps(report.as_json(), indent=2) if arguments.json else text_report(report)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the exit status is still right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    holds = report.judgement.holds
    if holds is None:
        return ExitStatus.WRONG
    return ExitStatus.DONE if holds else ExitStatus.NO


COMMAND: Final = Command("loadtest", __doc__, _ARGUMENTS, _run)


def _load_test(arguments: Namespace) -> LoadTest:
    """The test to run. Raises `OptionError`, also if the user declines."""
    from headgate.loadtest.judgement import CLOCK_ERROR_NS
    from headgate.loadtest.report import FAR_CLOCK_ERROR_NS, LoadTest
    from headgate.loadtest.target import addresses_of, are_of_this_machine, load_for

    tested, target = _tested(arguments), _target(arguments)
    load = load_for(
        tested,
        duration_ns=arguments.duration,
        rate=arguments.rate,
        callers=arguments.callers,
        connections=arguments.connections,
    )
    load.check(is_confirmed=arguments.yes)
    addresses = addresses_of(target)
    is_here = are_of_this_machine(addresses)
    if not is_here:
        ask(target, load, arguments.yes_really)
    return LoadTest(
        target,
        addresses,
        tested,
        load,
        allowed=frozenset(arguments.ok),
        clock_error_ns=arguments.clock_error or (CLOCK_ERROR_NS if is_here else FAR_CLOCK_ERROR_NS),
        is_verified=not arguments.insecure,
    )


def _tested(arguments: Namespace) -> LimitUnderTest:
    """The limit to test. Raises `OptionError`, or `NotationError` for an invalid limit."""
    from headgate.loadtest.limit_under_test import limit_in_notation, limit_of_rule

    policy = _policy(arguments)
    cost, overshoot, tier = arguments.cost, arguments.overshoot, arguments.tier
    if policy is not None:
        return limit_of_rule(policy, arguments.rule, tier=tier, cost=cost, overshoot=overshoot)
    if tier is not None:
        raise OptionError("a tier chooses limits of a rule; expected --rules or --admin with it")
    if not arguments.rule[:1].isdigit():
        raise OptionError(
            f"the rule is {arguments.rule!r}; expected a limit such as 100/s, or the id of a rule "
            "with --rules PATH or --admin URL"
        )
    return limit_in_notation(arguments.rule, cost=cost, overshoot=overshoot)


def _policy(arguments: Namespace) -> Policy | None:
    """The policy with the rule, from a file or from a service; None if there is none."""
    from headgate.cli.admin_client import AdminClient, admin_token
    from headgate.cli.policies import policy_at
    from headgate.policy.loader import read_policy_data

    if arguments.admin is None:
        if arguments.token_file is not None:
            raise OptionError("a token is for the admin API; expected --admin URL with it")
        return None if arguments.rules is None else policy_at(arguments.rules)
    if arguments.rules is not None:
        raise OptionError("the rule is in --rules or at --admin: give one of them")
    token = admin_token(arguments.token_file)
    content = AdminClient(arguments.admin, token, flag="--admin").get("/admin/v1/policy")
    return read_policy_data(content.get("policy"), where="the policy of the service")


def _target(arguments: Namespace) -> Target:
    """The target and the form of the requests. Raises `OptionError`."""
    from headgate.loadtest.target import CALLER, Target

    headers = [*arguments.header, *filter(None, [arguments.key_header])]
    for name, _ in headers:
        if name.lower() in _OWN_HEADERS:
            raise OptionError(f"the header {name} follows from the data; expected another one")
    data = _data(arguments.data)
    method = arguments.method or ("GET" if data is None else "POST")
    if not method.isascii() or not method.isalpha():
        raise OptionError(f"the method is {method!r}; expected one such as POST")
    found = Target(arguments.url, method.upper(), tuple(headers), data)
    if arguments.callers > 1 and not found.has_callers:
        raise OptionError(
            f"{arguments.callers} callers that all look the same are one; expected {CALLER} in "
            "--key-header, --header, --data or the URL"
        )
    return found


def _data(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    try:
        with Path(text[1:]).open(encoding="utf-8") as file:
            data = file.read(_LARGEST_DATA + 1)
    except (OSError, ValueError) as error:
        raise OptionError(f"the data in {text[1:]!r} cannot be read: {error}") from error
    if len(data) > _LARGEST_DATA:
        raise OptionError(f"the data in {text[1:]!r} is longer than 1 MiB")
    return data


def ask(target: Target, load: Load, consent: str | None) -> None:
    """Ask the user for consent to send requests to another machine.

    *consent* is the host of --yes-really. Raises `OptionError` without consent.
    """
    host = target.host
    if consent is not None:
        if consent.lower() == host.lower():
            return
        raise OptionError(f"--yes-really names {consent!r}; the URL is of {host!r}")
    if not is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        raise OptionError(
            f"{host} is not this machine, and there is no terminal for the question; to send it "
            f"about {load.requests:,} requests, pass --yes-really {host}"
        )
    seconds = load.duration_ns / SECOND
    print(
        f"This sends about {load.requests:,} requests to {host} in {seconds:g} s, from here.\n"
        "Only test a server of your own. Type the host name to continue: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip().lower() != host.lower():
        raise OptionError("nothing was sent: that is not the host name")


def _report(test: LoadTest, *, is_watched: bool) -> Report:
    """Run *test* and report on it, or on its requests until Ctrl-C.

    *is_watched*: show the progress on stderr. Ctrl-C during the final check is a
    `KeyboardInterrupt`.
    """
    from headgate.loadtest.report import Report
    from headgate.terminal import progress

    sender, is_whole = test.sender(), True
    with progress("load test", is_shown=is_watched) as update:
        try:
            asyncio.run(_send(sender, update))
        except KeyboardInterrupt:
            is_whole = False
        record = sender.record
        update(None, f"{len(record):,} responses; checking")
        judgement = test.judge(record)
    return Report(test, record, judgement, is_cut_short=not is_whole)


async def _send(sender: Sender, update: Update) -> None:
    """Run *sender*, and show its progress."""
    watching = asyncio.ensure_future(_watch(sender, update))
    try:
        await sender.run()
    finally:
        watching.cancel()


async def _watch(sender: Sender, update: Update) -> None:
    """Show the progress until cancelled."""
    while True:
        update(*sender.progress())
        await asyncio.sleep(_TICK_S)
