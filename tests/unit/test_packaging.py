"""The metadata of the package, as a release and as a clone make it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate import __version__

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://host.example/owner/name"
FILES = f"{REPOSITORY}/(?:blob|raw)/v{re.escape(__version__)}/"


def _metadata(monkeypatch: pytest.MonkeyPatch, repository: str) -> dict[str, Any]:
    monkeypatch.setenv("HEADGATE_REPOSITORY", repository)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata: dict[str, Any] = {"version": __version__}
    module.ProjectPage(str(ROOT), {}).update(metadata)
    return metadata


def test_every_link_of_the_project_page_leads_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _metadata(monkeypatch, f"{REPOSITORY}/")
    targets = re.findall(r"\]\(([^)]+)\)", found["readme"]["text"])
    assert len(targets) > 30
    for target in [*targets, found["urls"]["Documentation"], found["urls"]["Changelog"]]:
        file = re.fullmatch(rf"{FILES}([^#]+)(?:#.*)?", target)
        assert file is not None, target
        assert (ROOT / file[1]).is_file(), target


def test_pictures_of_the_project_page_are_raw_files(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _metadata(monkeypatch, REPOSITORY)["readme"]["text"]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all(one.startswith(f"{REPOSITORY}/raw/") for one in pictures)


def test_a_package_made_in_a_clone_has_the_readme_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _metadata(monkeypatch, "")
    assert found["readme"]["text"] == (ROOT / "README.md").read_text("utf-8")
    assert "urls" not in found


def test_the_changelog_has_an_entry_with_a_date_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)$", text, re.MULTILINE)
