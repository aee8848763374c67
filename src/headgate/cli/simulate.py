"""`headgate simulate`: replay traffic against rules.

Replay a trace against a policy in virtual time and report what would have been limited.

TRACE is CSV with a header row (time, method, path, ip, cost; other columns are headers), JSON lines
with the same names, or an access log of nginx or Envoy; plain or compressed (gz, xz, bz2), - for
stdin. Instead of a trace, --workload generates traffic. No requests are sent, and no counters of
a store are changed.

examples:
  headgate simulate rules.yaml access.log.gz
  headgate simulate rules.yaml access.log --against stricter.yaml --html report.html
  headgate simulate rules.yaml requests.csv --header x-api-key=key
  headgate simulate rules.yaml --workload bursts --rate 200 --duration 5m --callers 20
  headgate simulate rules.yaml yesterday.csv --fail-if-denied 1%        in CI

exit status: 0 done, 1 more was denied than --fail-if-denied allows, 2 wrong usage or no trace
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentTypeError
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import (
    JSON,
    Command,
    ExitStatus,
    argument,
    flag,
    number,
    pair,
    repeated,
    time_ns,
    whole_number,
)
from headgate.errors import OptionError
from headgate.terminal import require_rich
from headgate.units import SECOND

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from headgate.policy.model import Policy
    from headgate.simulator import Options, Outcome, Traffic

_FORMATS: Final = ("csv", "jsonl", "nginx", "envoy")
_WORKLOADS: Final = ("steady", "bursts", "retry_storm", "boundary_attack", "many_tenants")
_RETRIES: Final = ("at_once", "backoff", "retry_after")
_STDIN: Final = "-"


def share(text: str) -> float:
    """*text*, such as 1% or 0.01, as a number from 0 to 1."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"{text!r} is not a share such as 1% or 0.01")
    return found


def seconds(text: str) -> float:
    """*text*, such as 90, 90s, 1.5m or 250ms, in seconds."""
    return time_ns(text) / SECOND


_WORKLOAD_ARGUMENTS: Final = (
    argument("--rate", "N", "requests per second (100)", type=number),
    argument("--duration", "TIME", "such as 60s or 5m", type=seconds),
    argument("--callers", "N", "the number of callers", type=whole_number),
    argument("--seed", "N", "the seed of the random numbers", type=int),
    argument("--method", "NAME", "of all requests"),
    argument("--path", "PATH", "of all requests (default: a path of the rules)"),
    argument("--retry", None, "the reaction of denied clients (backoff)", choices=_RETRIES),
    argument("--attempts", "N", "the most attempts (5)", type=whole_number),
    argument("--every", "TIME", "the time between bursts (10s)", type=seconds),
    argument("--factor", "N", "the ratio of a burst to the rate (10)", type=number),
    argument("--exponent", "N", "the exponent of Zipf's law (1.1)", type=number),
)
_OPTIONS: Final = tuple(one.names[0].removeprefix("--") for one in _WORKLOAD_ARGUMENTS)
_ARGUMENTS: Final = (
    argument("policy", "POLICY", "the policy: a file or a directory"),
    argument("trace", "TRACE", "the traffic: a file, - for stdin", nargs="?"),
    argument("--against", "POLICY", "another policy to compare with"),
    argument("--format", None, "the format of the trace (default: detected)", choices=_FORMATS),
    repeated(
        "--header",
        "NAME=COLUMN",
        "the column or field of the trace with the header NAME; with --workload its value; may be "
        "repeated",
        type=pair("=", "NAME=COLUMN"),
    ),
    argument("--workload", None, "generated traffic", choices=_WORKLOADS),
    *_WORKLOAD_ARGUMENTS,
    argument(
        "--latency",
        "TIME",
        "the duration of requests if the trace has none (default 100ms); it matters for "
        "concurrency limits",
        type=time_ns,
        default="100ms",
    ),
    argument("--step", "TIME", "the step of the time series (default: chosen)", type=time_ns),
    argument(
        "--keys",
        None,
        "how to show secrets in keys (default hashed, the same as in stores)",
        choices=("hashed", "clear"),
        default="hashed",
    ),
    argument("--html", "FILE", "write a report with plots"),
    argument(
        "--fail-if-denied",
        "SHARE",
        "exit with 1 if more than this share of the requests is denied, such as 1%% or 0.01; with "
        "--against by that policy",
        type=share,
    ),
    flag("--quiet", "no progress bar"),
    JSON,
)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.policies import policy_at
    from headgate.simulator.report import text_report

    _check(arguments)
    if not arguments.json:
        require_rich()
    policies = [policy_at(path) for path in (arguments.policy, arguments.against) if path]
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


COMMAND: Final = Command("simulate", __doc__, _ARGUMENTS, _run)


def _check(arguments: Namespace) -> None:
    if (arguments.trace is None) == (arguments.workload is None):
        raise OptionError("pass either TRACE or --workload")
    if arguments.trace == _STDIN and arguments.against is not None:
        raise OptionError("two policies read the trace twice; pass a file instead of stdin")
    given = [name for name in _OPTIONS if getattr(arguments, name) is not None]
    if given and arguments.workload is None:
        raise OptionError(f"--{given[0]} is for generated traffic; pass --workload too")
    if arguments.format is not None and arguments.workload is not None:
        raise OptionError("--format is for a trace and does not apply to --workload")
    if arguments.html and not Path(arguments.html).absolute().parent.is_dir():
        raise OptionError(f"--html {arguments.html}: the directory does not exist")


def _replayed(policies: Sequence[Policy], place: int, arguments: Namespace) -> Outcome:
    """The outcome of the policy at *place*."""
    from headgate.simulator import replay
    from headgate.terminal import progress

    name = _names(arguments)[place]
    with progress(name, is_shown=not (arguments.quiet or arguments.json)) as update:
        return replay(
            policies[place],
            _traffic(policies, arguments),
            name=name,
            progress=lambda count, share: update(share, f"{count:,} requests"),
            step_ns=arguments.step,
            latency_ns=arguments.latency,
            keys=arguments.keys,
            salt=os.environ.get("HEADGATE_SALT", "").encode("utf-8", "surrogateescape"),
        )


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

    given = {name: value for name in _OPTIONS if (value := getattr(arguments, name)) is not None}
    headers = tuple((name.lower(), value) for name, value in arguments.header)
    return Options(headers=headers, **given)


def _write(outcomes: Sequence[Outcome], arguments: Namespace) -> None:
    try:
        if arguments.html:
            from headgate.simulator.report.html import html_report

            title = f"Simulation of {' and '.join(_names(arguments))}"
            page = html_report(outcomes, title=title)
            Path(arguments.html).write_text(page, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {error.filename}: {error.strerror}") from error
