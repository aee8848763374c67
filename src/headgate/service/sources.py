"""Sources of the service's rules: a file, a directory, etcd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.config.service import Settings
    from headgate.control.file_source import Parse
    from headgate.control.source import PolicySource

_ETCD: Final = ("etcd://", "etcds://")
_KEPT: Final = "policy.json"


def is_etcd(place: str) -> bool:
    """True if *place* is an etcd URL."""
    return place.lower().startswith(_ETCD)


def open_source(place: str, *, read_only: bool) -> PolicySource:
    """Open the source of the rules at *place*. Raises `OptionError`.

    With *read_only* nothing is written beside a file either: rules that cannot be changed over the
    network need no history.
    """
    if not is_etcd(place):
        from headgate.control.file_source import FileSource

        return FileSource(place, read_only=read_only)
    from headgate.control.etcd import EtcdSource

    return EtcdSource.open(place)


def kept_policy(settings: Settings) -> Path | None:
    """The file for the last good policy, or None."""
    return None if settings.state_dir is None else Path(settings.state_dir) / _KEPT


def check_sources(settings: Settings) -> tuple[str, ...]:
    """Check the rules that *settings* name; a summary. Raises `PolicyError`.

    Files are read and validated; etcd is not contacted.
    """
    summary = []
    if settings.rules is not None and is_etcd(settings.rules):
        source = open_source(settings.rules, read_only=True)
        summary.append(f"{source.place}: not contacted")
    elif settings.rules is not None:
        summary.append(_checked_files(settings.rules))
    if settings.envoy_config is not None:
        summary.append(_checked_envoy(settings.envoy_config, settings))
    return tuple(summary)


def envoy_parser(settings: Settings) -> Parse:
    """Return the function that reads files of envoyproxy/ratelimit's configuration."""
    from headgate.control.revision import Parsed
    from headgate.policy.envoy_config.reader import read_envoy_config

    def parse(texts: Sequence[tuple[str, bytes]]) -> tuple[dict[str, Any], Parsed]:
        config = read_envoy_config(texts, merge_domains=settings.envoy_merge_domains)
        return {}, Parsed(config, config.warnings)

    return parse


def _checked_files(place: str) -> str:
    from headgate.control.files import PolicyFiles

    loaded = PolicyFiles(place).load()
    warnings = "".join(f"\n{warning}" for warning in loaded.warnings)
    return f"{place}: {counted(len(loaded.policy.rules), 'rule')}{warnings}"


def _checked_envoy(place: str, settings: Settings) -> str:
    from headgate.control.files import PolicyFiles

    _, parsed = envoy_parser(settings)(PolicyFiles(place).read().parts)
    config = parsed.config
    warnings = "".join(f"\n{warning}" for warning in config.warnings)
    return f"{place}: {counted(len(config.domains), 'domain')}{warnings}"


def shown_store(url: str) -> str:
    """*url* without credentials and options, which may contain a password."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    rest = rest.partition("?")[0]
    return f"{scheme}://{rest.rpartition('@')[2]}"
