"""`headgate simulate`: replay a trace or a workload against a policy."""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import ArgumentTypeError
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json, whole_number
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from headgate.policy.model import Policy
    from headgate.simulator import Options, Outcome, Traffic

_FORMATS: Final = ("csv", "jsonl", "nginx", "envoy")
_WORKLOADS: Final = ("steady", "bursts", "retry_storm", "boundary_attack", "many_tenants")
_RETRIES: Final = ("at_once", "backoff", "retry_after")
_STDIN: Final = "-"
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600, "d": 86_400}
_DESCRIPTION: Final = """\
Replay a trace against a policy in virtual time and report what would have been limited.

TRACE is CSV with a header row (time, method, path, ip, cost; other columns are headers), JSON lines
with the same names, or an access log of nginx or Envoy; plain or compressed (gz, xz, bz2), - for
stdin. Instead of a trace, --workload generates traffic. No requests are sent, and no counters of
a store are changed."""
_EXAMPLES: Final = """\
examples:
  headgate simulate rules.yaml access.log.gz
  headgate simulate rules.yaml access.log --against stricter.yaml --html report.html
  headgate simulate rules.yaml requests.csv --header x-api-key=key
  headgate simulate rules.yaml --workload bursts --rate 200 --duration 5m --callers 20
  headgate simulate rules.yaml yesterday.csv --fail-if-denied 1%        in CI

exit status: 0 done, 1 more was denied than --fail-if-denied allows, 2 wrong usage or no trace"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("policy", metavar="POLICY", help="the policy: a file or a directory")
    parser.add_argument(
        "trace", metavar="TRACE", nargs="?", help="the traffic: a file, - for stdin"
    )
    parser.add_argument("--against", metavar="POLICY", help="another policy to compare with")
    parser.add_argument(
        "--format", choices=_FORMATS, help="the format of the trace (default: detected)"
    )
    parser.add_argument(
        "--header",
        metavar="NAME=COLUMN",
        action="append",
        default=[],
        type=_pair,
        help="the column or field of the trace with the header NAME; "
        "with --workload its value; may be repeated",
    )
    parser.add_argument("--workload", choices=_WORKLOADS, help="generated traffic")
    _add_workload(parser)
    parser.add_argument(
        "--latency",
        metavar="TIME",
        type=seconds,
        default=0.1,
        help="the duration of requests if the trace has none (default 100ms); it matters "
        "for concurrency limits",
    )
    parser.add_argument(
        "--step", metavar="TIME", type=seconds, help="the step of the time series (default: chosen)"
    )
    parser.add_argument(
        "--keys",
        choices=("hashed", "clear"),
        default="hashed",
        help="how to show secrets in keys (default hashed, the same as in stores)",
    )
    parser.add_argument("--html", metavar="FILE", help="write a report with plots")
    parser.add_argument("--png", metavar="DIR", help="write the plots as pictures")
    parser.add_argument(
        "--fail-if-denied",
        metavar="SHARE",
        type=share,
        help="exit with 1 if more than this share of the requests is denied, such as 1%% or 0.01; "
        "with --against by that policy",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_json(parser)


def _add_workload(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("generated traffic")
    group.add_argument("--rate", metavar="N", type=_number, help="requests per second (100)")
    group.add_argument("--duration", metavar="TIME", type=seconds, help="such as 60s or 5m")
    group.add_argument("--callers", metavar="N", type=whole_number, help="the number of callers")
    group.add_argument("--seed", metavar="N", type=int, help="the seed of the random numbers")
    group.add_argument("--method", metavar="NAME", help="of all requests")
    group.add_argument(
        "--path", metavar="PATH", help="of all requests (default: a path of the rules)"
    )
    group.add_argument("--retry", choices=_RETRIES, help="the reaction of denied clients (backoff)")
    group.add_argument("--attempts", metavar="N", type=whole_number, help="the most attempts (5)")
    group.add_argument(
        "--every", metavar="TIME", type=seconds, help="the time between bursts (10s)"
    )
    group.add_argument(
        "--factor", metavar="N", type=_number, help="the ratio of a burst to the rate (10)"
    )
    group.add_argument(
        "--exponent", metavar="N", type=_number, help="the exponent of Zipf's law (1.1)"
    )


_OF_WORKLOADS: Final = (
    *("rate", "duration", "callers", "seed", "method", "path", "retry", "attempts"),
    *("every", "factor", "exponent"),
)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.simulator.report import text_report

    _check(arguments)
    policies = [_policy_at(path) for path in (arguments.policy, arguments.against) if path]
    outcomes = [_replayed(policies, place, arguments) for place in range(len(policies))]
    _write(outcomes, arguments)
    if arguments.json:
        print(json.dumps([asdict(one) for one in outcomes], indent=2))
    else:
        print(text_report(outcomes))
    last, most = outcomes[-1], arguments.fail_if_denied
    if most is None or last.denied <= most * last.requests:
        return ExitStatus.DONE
    denied = last.denied / last.requests
    print(f"{denied:.2%} of the requests are denied, more than {most:.2%}", file=sys.stderr)
    return ExitStatus.NO


COMMAND: Final = Command(
    "simulate", "replay traffic against rules", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)


def _check(arguments: Namespace) -> None:
    if (arguments.trace is None) == (arguments.workload is None):
        raise OptionError("pass either TRACE or --workload")
    if arguments.trace == _STDIN and arguments.against is not None:
        raise OptionError("two policies read the trace twice; pass a file instead of stdin")
    given = [name for name in _OF_WORKLOADS if getattr(arguments, name) is not None]
    if given and arguments.workload is None:
        raise OptionError(f"--{given[0]} is for generated traffic; pass --workload too")
    if arguments.format is not None and arguments.workload is not None:
        raise OptionError("--format is for a trace and does not apply to --workload")
    for flag in ("html", "png"):
        path = getattr(arguments, flag)
        if path and not Path(path).absolute().parent.is_dir():
            raise OptionError(f"--{flag} {path}: the directory does not exist")


def _policy_at(path: str) -> Policy:
    from headgate.cli.rules.texts import print_problems, texts_at
    from headgate.policy.loader import examine_policies

    examined = examine_policies(texts_at(path))
    if examined.policy is None:
        print_problems(examined.problems)
        raise OptionError(f"{path!r} is invalid, so there is nothing to simulate")
    return examined.policy


def _replayed(policies: Sequence[Policy], place: int, arguments: Namespace) -> Outcome:
    """The outcome of the policy at *place*."""
    from headgate.cli.terminal import ProgressBar
    from headgate.simulator import replay
    from headgate.units import duration_ns

    name = _names(arguments)[place]
    bar = ProgressBar(name)
    is_shown = bar.is_visible and not (arguments.quiet or arguments.json)
    try:
        return replay(
            policies[place],
            _traffic(policies, arguments),
            name=name,
            progress=bar if is_shown else None,
            step_ns=None if arguments.step is None else duration_ns(arguments.step, "step"),
            latency_ns=duration_ns(arguments.latency, "latency"),
            keys=arguments.keys,
            salt=os.environ.get("HEADGATE_SALT", "").encode("utf-8", "surrogateescape"),
        )
    finally:
        bar.clear()


def _names(arguments: Namespace) -> list[str]:
    """The names of the policies: their file names, or their paths if those are equal."""
    paths = [path for path in (arguments.policy, arguments.against) if path]
    names = [Path(path).name or path for path in paths]
    return names if len(set(names)) == len(names) else paths


def _traffic(policies: Sequence[Policy], arguments: Namespace) -> Traffic:
    from headgate.simulator import open_trace, workload

    if arguments.workload is not None:
        return workload(arguments.workload, policies[0], _options(arguments))
    return open_trace(
        arguments.trace,
        policies=policies,
        kind=arguments.format,
        headers=dict(arguments.header),
    )


def _options(arguments: Namespace) -> Options:
    from headgate.simulator import Options

    given = {name: getattr(arguments, name) for name in _OF_WORKLOADS}
    said = {name: value for name, value in given.items() if value is not None}
    headers = tuple((name.lower(), value) for name, value in arguments.header)
    return Options(headers=headers, **said)


def _write(outcomes: Sequence[Outcome], arguments: Namespace) -> None:
    from headgate.simulator.report import html_report, write_pngs

    try:
        if arguments.html:
            title = f"Simulation of {' and '.join(_names(arguments))}"
            page = html_report(outcomes, title=title)
            Path(arguments.html).write_text(page, encoding="utf-8")
        if arguments.png:
            write_pngs(outcomes, Path(arguments.png))
    except OSError as error:
        raise OptionError(f"cannot write {error.filename}: {error.strerror}") from error


def seconds(text: str) -> float:
    """*text*, such as 90, 90s, 1.5m or 250ms, in seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not float(found[1]):
        raise ArgumentTypeError(f"{text!r} is not a time such as 90s, 5m or 250ms")
    return float(found[1]) * _SECONDS[found[2]]


def share(text: str) -> float:
    """*text*, such as 1% or 0.01, as a number from 0 to 1."""
    number, is_percent = text.removesuffix("%"), text.endswith("%")
    try:
        found = float(number) / (100 if is_percent else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share such as 1% or 0.01")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise ArgumentTypeError(f"{text!r} is not NAME=COLUMN")
    return name.strip(), value.strip()
