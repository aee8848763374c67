"""The project page of a release: the addresses of the repository, and a README with whole links.

The release workflow sets `HEADGATE_REPOSITORY` (https://host/owner/name). Without it, as in a
clone, the README stays as it is and the package has no addresses.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)]+)\)")


class ProjectPage(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("HEADGATE_REPOSITORY", "").rstrip("/")
        if repository:
            tag = f"v{metadata['version']}"
            text = _with_whole_links(text, repository, tag)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/{tag}/docs/index.md",
                "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _with_whole_links(text: str, repository: str, tag: str) -> str:
    """*text* with links to files of the repository at *tag*; pictures are raw files."""

    def whole(link: re.Match[str]) -> str:
        mark, label, target = link.groups()
        return f"{mark}{label}({repository}/{'raw' if mark else 'blob'}/{tag}/{target})"

    return _LINK.sub(whole, text)
