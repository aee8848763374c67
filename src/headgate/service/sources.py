"""Where the rules of the service come from: a file, a directory, etcd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.config.service import Settings
    from headgate.control.file_source import Parse
    from headgate.control.source import PolicySource

_ETCD: Final = ("etcd://", "etcds://")
_KEPT: Final = "policy.json"


def is_etcd(place: str) -> bool:
    """Whether the rules at *place* are those of a fleet."""
    return place.lower().startswith(_ETCD)


def open_source(place: str, *, read_only: bool) -> PolicySource:
    """Open the source of the rules at *place*. Raises `OptionError`.

    With *read_only* nothing is written beside a file either: no history is needed where rules
    cannot be changed over the network.
    """
    if not is_etcd(place):
        from headgate.control.file_source import FileSource

        return FileSource(place, read_only=read_only)
    from headgate.control.etcd import EtcdSource

    return EtcdSource.open(place)


def kept_policy(settings: Settings) -> Path | None:
    """The file where the last good policy is kept, if one is to be."""
    return None if settings.state_dir is None else Path(settings.state_dir) / _KEPT


def check_sources(settings: Settings) -> tuple[str, ...]:
    """What there is to say for the rules that *settings* name. Raises `PolicyError`.

    Files are read and examined; etcd is not asked.
    """
    told = []
    if settings.rules is not None and is_etcd(settings.rules):
        source = open_source(settings.rules, read_only=True)
        told.append(f"{source.place}: not asked")
    elif settings.rules is not None:
        told.append(_checked_files(settings.rules))
    if settings.envoy_config is not None:
        told.append(_checked_envoy(settings.envoy_config, settings))
    return tuple(told)


def envoy_parser(settings: Settings) -> Parse:
    """Return the function that reads files of envoyproxy/ratelimit's configuration."""
    from headgate.control.revision import Parsed
    from headgate.policy.envoy_config import read_envoy_config

    def parse(texts: Sequence[tuple[str, bytes]]) -> tuple[dict[str, Any], Parsed]:
        config = read_envoy_config(texts, merge_domains=settings.envoy_merge_domains)
        return {}, Parsed(config, config.warnings)

    return parse


def counted(count: int, what: str) -> str:
    """So many of something, in words."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


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
    """*url* without what may be a password: neither before the host nor among the options."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    rest = rest.partition("?")[0]
    return f"{scheme}://{rest.rpartition('@')[2]}"
