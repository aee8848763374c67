"""The inputs of `headgate loadtest`, the consent of the user, and the run with its progress."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.cli.terminal import StatusLine, is_terminal
from headgate.errors import NotationError, OptionError
from headgate.limits import parse_rate
from headgate.loadtest.options import CALLER, Target
from headgate.loadtest.report import Report
from headgate.loadtest.rule_source import aim_in_words, aim_of, policy_in, policy_of_service
from headgate.units import SECOND

if TYPE_CHECKING:
    from argparse import Namespace
    from fractions import Fraction

    from headgate.loadtest.client import Sender
    from headgate.loadtest.options import Aim, Load
    from headgate.loadtest.record import Record
    from headgate.loadtest.report import Trial
    from headgate.policy.model import Policy


_TOKEN: Final = "HEADGATE_ADMIN_TOKEN"  # noqa: S105 - where one is found
_LARGEST_DATA: Final = 1_048_576
_FILE: Final = "@"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN: Final = frozenset({"content-length", "transfer-encoding"})
"""Headers that the client sets."""


def time_ns(text: str) -> int:
    """*text*, such as `10s` or `500ms`, in nanoseconds, for argparse."""
    try:
        return int(SECOND / parse_rate(f"1/{text}"))
    except NotationError as error:
        raise ArgumentTypeError(f"{text!r} is not a time; expected one such as 10s") from error


def rate(text: str) -> Fraction:
    """*text*, such as `200/s` or `200`, as requests a second, for argparse."""
    try:
        return parse_rate(f"{text}/s" if text.isdecimal() else text)
    except NotationError as error:
        raise ArgumentTypeError(f"{text!r} is not a rate; expected one such as 200/s") from error


def status(text: str) -> int:
    """*text* as a status of HTTP, for argparse."""
    if text.isascii() and text.isdecimal() and 100 <= int(text) <= 599 and text != "429":
        return int(text)
    raise ArgumentTypeError(f"{text!r} cannot count as allowed; expected a status such as 404")


def aim(arguments: Namespace) -> Aim:
    """The limit to test. Raises `OptionError`, or `NotationError` for an invalid limit."""
    policy = _policy(arguments)
    cost, overshoot = arguments.cost, arguments.overshoot
    if policy is not None:
        tier = arguments.tier
        return aim_of(policy, arguments.rule, tier=tier, cost=cost, overshoot=overshoot)
    if arguments.tier is not None:
        raise OptionError("a tier chooses limits of a rule; expected --rules or --admin with it")
    if not arguments.rule[:1].isdigit():
        raise OptionError(
            f"the rule is {arguments.rule!r}; expected a limit such as 100/s, or the id of a rule "
            "with --rules PATH or --admin URL"
        )
    return aim_in_words(arguments.rule, cost=cost, overshoot=overshoot)


def _policy(arguments: Namespace) -> Policy | None:
    if arguments.admin is None:
        if arguments.token_file is not None:
            raise OptionError("a token is for the admin API; expected --admin URL with it")
        return None if arguments.rules is None else policy_in(arguments.rules)
    if arguments.rules is not None:
        raise OptionError("the rule is in --rules or at --admin: give one of them")
    return policy_of_service(arguments.admin, _token(arguments.token_file))


def _token(path: str | None) -> str:
    if path is None:
        token = os.environ.get(_TOKEN, "")
    else:
        try:
            token = Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise OptionError(f"the token file {path!r} cannot be read: {error}") from error
    if not token.strip():
        raise OptionError(f"the admin API needs a token; expected {_TOKEN} or --token-file FILE")
    return token.strip()


def target(arguments: Namespace) -> Target:
    """The target and the form of the requests. Raises `OptionError`."""
    headers = [_pair(text, ":", "--header", "NAME:VALUE") for text in arguments.header]
    if arguments.key_header is not None:
        headers.append(_pair(arguments.key_header, "=", "--key-header", "x-api-key=loadtest-{n}"))
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
    if arguments.baseline is not None:
        found.at(arguments.baseline)
    return found


def _pair(text: str, mark: str, flag: str, expected: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    name, value = name.strip(), value.strip()
    if not found or _NAME.fullmatch(name) is None or not value.isprintable():
        raise OptionError(f"{flag} has no name and value; expected {expected}")
    if name.lower() in _OWN:
        raise OptionError(f"{flag} is {name}, which follows from the data; expected another one")
    return name, value


def _data(text: str | None) -> str | None:
    if text is None or not text.startswith(_FILE):
        return text
    try:
        with Path(text.removeprefix(_FILE)).open(encoding="utf-8") as file:
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
            f"{host} is not this machine, and there is no terminal to ask on; if it may be sent "
            f"about {load.requests:,} requests, give --yes-really {host}"
        )
    seconds = load.duration_ns / SECOND
    print(
        f"This sends about {load.requests:,} requests to {host} in {seconds:g} s, from here.\n"
        "Only do that to what is yours. Type the host name to go on: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip().lower() != host.lower():
        raise OptionError("nothing was sent: that is not the host name")


_TICK_S: Final = 0.25


class _Seen(NamedTuple):
    record: Record
    baseline: Record | None
    is_whole: bool


def run_trial(trial: Trial, *, is_watched: bool) -> Report:
    """Run *trial* and report on it, or on its requests until Ctrl-C.

    *is_watched*: show the progress on stderr. Ctrl-C during the baseline, or during the final
    check, is a `KeyboardInterrupt`.
    """
    line = StatusLine() if is_watched else None
    try:
        seen = asyncio.run(_drive(trial, line))
        if line is not None:
            line.show(f"{len(seen.record):,} responses; checking")
        judgement = trial.judge(seen.record)
    finally:
        if line is not None:
            line.clear()
    return Report(trial, seen.record, judgement, seen.baseline, is_cut_short=not seen.is_whole)


async def _drive(trial: Trial, line: StatusLine | None) -> _Seen:
    """Send all requests, or those until Ctrl-C."""
    bare = trial.baseline_sender()
    if bare is not None and not await _sent(bare, "baseline", line):
        raise KeyboardInterrupt
    sender = trial.sender()
    is_whole = await _sent(sender, "", line)
    return _Seen(sender.record, None if bare is None else bare.record, is_whole)


async def _sent(sender: Sender, what: str, line: StatusLine | None) -> bool:
    """Run *sender*; False if it was stopped by Ctrl-C."""
    sending = asyncio.ensure_future(sender.run())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, sending.cancel)
    watching = None if line is None else asyncio.ensure_future(_watch(sender, what, line))
    try:
        await sending
    except asyncio.CancelledError:
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if watching is not None:
            watching.cancel()
    return True


async def _watch(sender: Sender, what: str, line: StatusLine) -> None:
    """Show the progress until cancelled."""
    while True:
        line.show(sender.progress(what))
        await asyncio.sleep(_TICK_S)
