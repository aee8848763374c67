"""`headgate rules`: check a policy, ask it about a request, print its schema, import another's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.cli.command import Command, ExitStatus
from headgate.cli.rules import check, explain, import_envoy, schema

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

_COMMANDS: Final[tuple[Command, ...]] = (
    check.COMMAND,
    explain.COMMAND,
    schema.COMMAND,
    import_envoy.COMMAND,
)
_DESCRIPTION: Final = """\
Work on rules: the YAML or JSON that says who may ask for what, and how often.

Nothing here changes a rule or a counter."""
_EXAMPLES: Final = """\
examples:
  headgate rules check rules.yaml
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4
  headgate rules schema > headgate.schema.json
  headgate rules import-envoy ratelimit/config > rules.yaml

Each of them has --help."""


def _add_arguments(parser: ArgumentParser) -> None:
    commands: _SubParsersAction[Any] = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    for command in _COMMANDS:
        one = commands.add_parser(
            command.name.rpartition(" ")[2],
            help=command.summary,
            description=command.description,
            epilog=command.examples,
        )
        command.add_arguments(one)
        one.set_defaults(command=command)


def _run(arguments: Namespace) -> ExitStatus:
    raise NotImplementedError  # one of the commands takes its place


COMMAND: Final = Command("rules", "work on rules", _DESCRIPTION, _EXAMPLES, _add_arguments, _run)
