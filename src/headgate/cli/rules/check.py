"""`headgate rules check`: check a policy.

Check a policy and print its problems with file, line and column. A terminal shows the line, too.

A policy with an error is not applied. A warning is a probable mistake.

examples:
  headgate rules check rules.yaml
  headgate rules check policies/               all *.yaml, *.yml, *.json in it are one policy
  headgate rules check - < rules.yaml
  headgate rules check rules.yaml --strict     for CI: warnings count as errors

exit status: 0 no errors, 1 errors, 2 PATH cannot be read
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from headgate.cli.command import JSON, Command, ExitStatus, argument, flag
from headgate.errors import pointed_at
from headgate.terminal import bold, counted, duration, is_terminal, printable, styled

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.policy.loader import Examined
    from headgate.policy.problems import Problem


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.policies import texts_at
    from headgate.policy.loader import examine_policies

    texts = texts_at(arguments.path)
    examined = examine_policies(texts)
    if arguments.json:
        print(json.dumps([asdict(problem) for problem in examined.problems], indent=2))
    else:
        name = printable(texts[0][0] if len(texts) == 1 else arguments.path)
        summary = f"{name}: {', '.join(_summary(len(texts), examined))}"
        print("\n".join([*_problems(examined.problems, dict(texts)), *_notes(examined), summary]))
    is_bad = examined.policy is None or (arguments.strict and examined.problems)
    return ExitStatus.NO if is_bad else ExitStatus.DONE


COMMAND: Final = Command(
    "rules check",
    __doc__,
    (
        argument("path", "PATH", "a file, a directory, or - for stdin"),
        flag("--strict", "treat warnings as errors"),
        JSON,
    ),
    _run,
)


_COLOURS: Final = {"error": "red", "warning": "yellow"}
_INDENT: Final = "    "


def _problems(problems: Iterable[Problem], texts: Mapping[str, bytes]) -> Iterator[str]:
    """The lines of each problem; on a terminal in colours, and with its place in *texts*."""
    from headgate.cli.policies import lines

    for problem, line in zip(problems, lines(problems), strict=True):
        start = f"{problem.place}: "
        if not line.startswith(start):  # characters of the name are escaped
            yield line
            continue
        rest = line[len(start) :].removeprefix(problem.severity)
        severity = styled(problem.severity, _COLOURS[problem.severity])
        yield f"{bold(start)}{severity}{rest}"
        if is_terminal(sys.stdout):
            yield from _excerpt(problem, texts)


def _excerpt(problem: Problem, texts: Mapping[str, bytes]) -> Iterator[str]:
    """The line of *problem* and a caret below its column, cut to the width of the terminal."""
    written = texts.get(problem.where, b"").decode("utf-8", "replace").splitlines()
    if problem.line is None or problem.column is None or problem.line > len(written):
        return
    width = get_terminal_size().columns - len(_INDENT)
    line, caret = pointed_at(written[problem.line - 1], problem.column - 1, width)
    yield f"{_INDENT}{line}"
    yield f"{_INDENT}{styled(caret, _COLOURS[problem.severity])}"


_LOCAL: Final = (
    "each gateway remembers the 262,144 callers that it saw last; all callers together have that "
    "many times the limit. Keys that clients invent make it forget others"
)


def _notes(examined: Examined) -> Iterator[str]:
    """Notes about effects of rules that are easy to miss."""
    for rule in () if examined.policy is None else examined.policy.rules:
        if (one := rule.idempotency) is not None:
            retries = "1 retry" if one.retries == 1 else f"{one.retries} retries"
            same = f" with the same {' and '.join(one.fingerprint)}" if one.fingerprint else ""
            text = f"a key is free for up to {retries}{same} within {duration(one.ttl_ns)}"
            yield printable(f"note: rule {rule.id!r}, field 'idempotency': {text}")
        if rule.decide == "local" and not {"global", "host"}.issuperset(rule.key_by):
            yield printable(f"note: rule {rule.id!r}, field 'decide': {_LOCAL}")


def _summary(files: int, examined: Examined) -> Iterator[str]:
    if examined.policy is not None:
        within = f" in {files} files" if files > 1 else ""
        yield f"{counted(len(examined.policy.rules), 'rule')}{within}"
    for severity in ("error", "warning"):
        if count := sum(problem.severity == severity for problem in examined.problems):
            yield styled(counted(count, severity), _COLOURS[severity])
    if not examined.problems:
        yield styled("no problems", "green")
