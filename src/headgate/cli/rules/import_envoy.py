"""`headgate rules import-envoy`: convert a configuration of envoyproxy/ratelimit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from headgate.cli.rules.texts import Text
    from headgate.policy.problems import Problem

_DESCRIPTION: Final = """\
Print a policy equivalent to a configuration of envoyproxy/ratelimit. Parts that rules cannot
express are reported on stderr with file and line."""
_EXAMPLES: Final = """\
examples:
  headgate rules import-envoy ratelimit/config > rules.yaml
  headgate rules import-envoy ratelimit/config --output rules.yaml --force

exit status: 0 done, 1 the files are invalid, 2 DIR cannot be read or FILE cannot be written"""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="DIR", help="the directory of its *.yaml files, or one file"
    )
    parser.add_argument("--output", metavar="FILE", help="write to FILE atomically")
    parser.add_argument("--force", action="store_true", help="replace an existing FILE")
    parser.add_argument(
        "--merge-domains",
        action="store_true",
        help="allow several files for one domain, as with MERGE_DOMAIN_CONFIG",
    )


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.rules.texts import print_problems, texts_at
    from headgate.policy.problems import PolicyError

    target = None if arguments.output is None else Path(arguments.output)
    if target is not None and target.exists() and not arguments.force:
        raise OptionError(f"{str(target)!r} exists; pass --force to replace it")
    files = texts_at(arguments.path)
    try:
        text, warnings = _converted(files, is_merging=arguments.merge_domains)
    except PolicyError as error:
        print_problems(error.problems)
        return ExitStatus.NO
    print_problems(warnings)
    if target is None:
        print(text, end="")
    else:
        _write(target, text)
    return ExitStatus.DONE


COMMAND: Final = Command(
    "rules import-envoy",
    "convert a configuration of envoyproxy/ratelimit",
    _DESCRIPTION,
    _EXAMPLES,
    _add_arguments,
    _run,
)


def _converted(files: Sequence[Text], *, is_merging: bool) -> tuple[str, list[Problem]]:
    """The policy as YAML, and the warnings."""
    from headgate.policy.envoy_config import convert, read_envoy_config

    config = read_envoy_config(files, merge_domains=is_merging)
    made = convert(config)
    return _yaml(made.policy), [*config.warnings, *made.warnings]


def _yaml(policy: dict[str, object]) -> str:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise OptionError("YAML needs the package PyYAML: pip install 'headgate[rules]'") from error
    return yaml.safe_dump(policy, sort_keys=False, allow_unicode=True, width=100)


def _write(target: Path, text: str) -> None:
    """Write *text* to *target* atomically."""
    import tempfile

    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        draft = Path(name)
        try:
            with open(handle, "w", encoding="utf-8") as stream:  # noqa: PTH123 - it is open
                stream.write(text)
            draft.chmod(_mode(target))
            draft.replace(target)
        except BaseException:
            draft.unlink()
            raise
    except OSError as error:
        raise OptionError(f"cannot write {str(target)!r}: {error.strerror or error}") from error


def _mode(target: Path) -> int:
    """The permissions that *target* has, or that a new file would have."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
