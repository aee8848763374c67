"""The files that Envoy reads, replaced as they change, and put back if they do not please."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.gateway.envoy.values import Documents
    from headgate.gateway.running.run_directory import RunDirectory

BOOTSTRAP: Final = "bootstrap.json"


class DiscoveryFiles:
    """The documents of Envoy in *directory*. All that change are replaced, or none is."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._written: dict[str, bytes] = {}
        self._settled: dict[str, bytes] = {}

    def added(self, documents: Documents) -> int:
        """How many files of *documents* are not watched by Envoy yet."""
        return len(documents.discovered.keys() - self._settled.keys())

    def is_written(self, documents: Documents) -> bool:
        """Whether nothing is new in *documents*."""
        return not self._changed(_texts(documents))

    def write(self, documents: Documents) -> tuple[str, ...]:
        """Write what is new in *documents*; the names, in the order they were replaced.

        That is the order of *documents*: what a file names must be there. Raises `GatewayError`.
        """
        return self._replace(_texts(documents))

    def settle(self, documents: Documents) -> None:
        """*documents*, which are written, are good: remember them, and remove what there is
        besides, which Envoy does not need any more."""
        wanted = {BOOTSTRAP, *documents.discovered}
        self._remove([name for name in self._written if name not in wanted])
        self._settled = dict(self._written)

    def restore(self) -> None:
        """Back to what was settled. Raises `GatewayError`."""
        self._replace(self._settled)
        self._remove([name for name in self._written if name not in self._settled])

    def _replace(self, wanted: Mapping[str, bytes]) -> tuple[str, ...]:
        changed = self._changed(wanted)
        self._directory.write_all(changed)
        self._written |= changed
        return tuple(changed)

    def _changed(self, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
        return {
            name: content for name, content in wanted.items() if self._written.get(name) != content
        }

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._directory.place(name).unlink(missing_ok=True)
            del self._written[name]


def _texts(documents: Documents) -> dict[str, bytes]:
    wanted = {BOOTSTRAP: documents.bootstrap, **documents.discovered}
    return {name: json.dumps(one, indent=1).encode() for name, one in wanted.items()}
