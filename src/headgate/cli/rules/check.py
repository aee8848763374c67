"""`headgate rules check`: report the problems of a policy like a compiler."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from headgate.policy.loader import Examined
    from headgate.policy.problems import Problem

_DESCRIPTION: Final = """\
Check a policy and print its problems with file, line and column.

A policy with an error is not applied. A warning is a probable mistake."""
_EXAMPLES: Final = """\
examples:
  headgate rules check rules.yaml
  headgate rules check policies/               all *.yaml, *.yml, *.json in it are one policy
  headgate rules check - < rules.yaml
  headgate rules check rules.yaml --strict     for CI: warnings count as errors

exit status: 0 no errors, 1 errors, 2 PATH cannot be read"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a file, a directory, or - for stdin")
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    add_json(parser)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.rules.texts import lines, texts_at, visible
    from headgate.policy.loader import examine_policies

    texts = texts_at(arguments.path)
    examined = examine_policies(texts)
    if arguments.json:
        print(json.dumps([asdict(problem) for problem in examined.problems], indent=2))
    else:
        name = visible(texts[0][0] if len(texts) == 1 else arguments.path)
        printed = [*lines(examined.problems), *_notes(examined)]
        print("\n".join([*printed, _summary(name, len(texts), examined)]))
    return _status(examined, is_strict=arguments.strict)


COMMAND: Final = Command(
    "rules check", "check a policy", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)


def _status(examined: Examined, *, is_strict: bool) -> ExitStatus:
    is_bad = examined.policy is None or (is_strict and examined.problems)
    return ExitStatus.NO if is_bad else ExitStatus.DONE


def _notes(examined: Examined) -> Iterator[str]:
    """Notes about effects of rules that are easy to miss."""
    from headgate.cli.rules.texts import visible
    from headgate.cli.terminal import duration

    for rule in () if examined.policy is None else examined.policy.rules:
        if (one := rule.idempotency) is not None:
            retries = "1 retry" if one.retries == 1 else f"{one.retries} retries"
            same = f" with the same {' and '.join(one.fingerprint)}" if one.fingerprint else ""
            text = f"a key is free for up to {retries}{same} within {duration(one.ttl_ns)}"
            yield visible(f"note: rule {rule.id!r}, field 'idempotency': {text}")


def _summary(name: str, files: int, examined: Examined) -> str:
    parts = []
    if examined.policy is not None:
        parts.append(_counted(len(examined.policy.rules), "rule"))
        parts[0] += f" in {files} files" if files > 1 else ""
    parts += [
        _counted(count, severity)
        for severity in ("error", "warning")
        if (count := _count(examined.problems, severity))
    ]
    return f"{name}: {', '.join(parts if examined.problems else [*parts, 'no problems'])}"


def _count(problems: tuple[Problem, ...], severity: str) -> int:
    return sum(problem.severity == severity for problem in problems)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
