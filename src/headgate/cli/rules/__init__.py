"""`headgate rules`: work on rules.

Work on rules: YAML or JSON files with limits for requests.

These commands change no rules and no counters.

examples:
  headgate rules check rules.yaml
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4
  headgate rules schema > headgate.schema.json
  headgate rules import-envoy ratelimit/config > rules.yaml

Each command has --help.
"""

from __future__ import annotations

from typing import Final

from headgate.cli.command import Command
from headgate.cli.rules import check, explain, import_envoy, schema

COMMAND: Final = Command(
    "rules",
    __doc__,
    commands=(check.COMMAND, explain.COMMAND, schema.COMMAND, import_envoy.COMMAND),
)
