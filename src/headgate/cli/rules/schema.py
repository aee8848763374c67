"""`headgate rules schema`: print the JSON Schema.

Print the JSON Schema of policies, for completion and checks in editors.

example:
  headgate rules schema > headgate.schema.json

Then put this at the top of rules.yaml, for all editors with a YAML language server (VS Code with
the extension "YAML", Neovim, Emacs, Helix, Zed; JetBrains reads it too):

  # yaml-language-server: $schema=./headgate.schema.json

The schema covers fields and their types; headgate rules check also finds contradictions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus

if TYPE_CHECKING:
    from argparse import Namespace


def _run(_: Namespace) -> ExitStatus:
    from headgate.policy.policy_document import policy_schema

    print(json.dumps(policy_schema(), indent=2))
    return ExitStatus.DONE


COMMAND: Final = Command("rules schema", __doc__, run=_run)
