"""`headgate rules schema`: the JSON Schema of policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_DESCRIPTION: Final = """\
Print the JSON Schema of policies, by which editors complete and check what you type."""
_EXAMPLES: Final = """\
example:
  headgate rules schema > headgate.schema.json

Then put this at the top of rules.yaml, for all editors with a YAML language server (VS Code with
the extension "YAML", Neovim, Emacs, Helix, Zed; JetBrains reads it too):

  # yaml-language-server: $schema=./headgate.schema.json

It knows what the fields are. What they mean together is known to headgate rules check."""


def _add_arguments(parser: ArgumentParser) -> None:
    """There are none."""


def _run(_: Namespace) -> ExitStatus:
    from headgate.policy.policy_document import policy_schema

    print(json.dumps(policy_schema(), indent=2))
    return ExitStatus.DONE


COMMAND: Final = Command(
    "rules schema", "print the JSON Schema", _DESCRIPTION, _EXAMPLES, _add_arguments, _run
)
