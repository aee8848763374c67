"""`headgate rules import-envoy`: convert a configuration of envoyproxy/ratelimit.

Print a policy equivalent to a configuration of envoyproxy/ratelimit. Parts that rules cannot
express are reported on stderr with file and line.

examples:
  headgate rules import-envoy ratelimit/config > rules.yaml
  headgate rules import-envoy ratelimit/config --output rules.yaml --force

exit status: 0 done, 1 the files are invalid, 2 DIR cannot be read or FILE cannot be written
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, argument, flag
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import Namespace


_ARGUMENTS: Final = (
    argument("path", "DIR", "the directory of its *.yaml files, or one file"),
    argument("--output", "FILE", "write to FILE atomically"),
    flag("--force", "replace an existing FILE"),
    flag("--merge-domains", "allow several files for one domain, as with MERGE_DOMAIN_CONFIG"),
)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.policies import print_problems, texts_at
    from headgate.control.files import replace_file
    from headgate.policy.envoy_config.conversion import convert
    from headgate.policy.envoy_config.reader import read_envoy_config
    from headgate.policy.problems import PolicyError

    target = None if arguments.output is None else Path(arguments.output)
    if target is not None and target.exists() and not arguments.force:
        raise OptionError(f"{str(target)!r} exists; pass --force to replace it")
    files = texts_at(arguments.path)
    try:
        config = read_envoy_config(files, merge_domains=arguments.merge_domains)
        converted = convert(config)
    except PolicyError as error:
        print_problems(error.problems)
        return ExitStatus.NO
    text = _yaml(converted.policy)
    print_problems([*config.warnings, *converted.warnings])
    if target is None:
        print(text, end="")
    else:
        try:
            replace_file(target, text.encode(), is_like_old=True)
        except OSError as error:
            raise OptionError(f"cannot write {str(target)!r}: {error.strerror or error}") from error
    return ExitStatus.DONE


COMMAND: Final = Command("rules import-envoy", __doc__, _ARGUMENTS, _run)


def _yaml(policy: dict[str, object]) -> str:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise OptionError("YAML needs the package PyYAML: pip install 'headgate[rules]'") from error
    return yaml.safe_dump(policy, sort_keys=False, allow_unicode=True, width=100)
