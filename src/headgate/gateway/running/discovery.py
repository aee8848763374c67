"""The files that Envoy reads, replaced one by one as they change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Documents, Json
    from headgate.gateway.running.run_directory import RunDirectory

BOOTSTRAP: Final = "bootstrap.json"


class DiscoveryFiles:
    """The documents of Envoy in *directory*. Every file is replaced as a whole, or stays."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._written: dict[str, bytes] = {}

    def write(self, documents: Documents) -> tuple[str, ...]:
        """Write what is new in *documents*; the names, in the order they were replaced.

        That is the order of *documents*: what a file names must be there. Raises `GatewayError`.
        """
        wanted = {BOOTSTRAP: documents.bootstrap, **documents.discovered}
        changed = []
        for name, document in wanted.items():
            content = _text(document)
            if self._written.get(name) != content:
                self._directory.write(name, content)
                self._written[name] = content
                changed.append(name)
        return tuple(changed)

    def forget(self, documents: Documents) -> None:
        """Remove what *documents* no longer have, once Envoy does not need it any more."""
        for name in [*self._written]:
            if name != BOOTSTRAP and name not in documents.discovered:
                self._directory.place(name).unlink(missing_ok=True)
                del self._written[name]


def _text(document: Json) -> bytes:
    return json.dumps(document, indent=1).encode()
