"""The code that README.md and docs/ show is code that runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


@pytest.fixture
def _own_shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores in shared memory that are gone afterwards, and are nobody else's."""
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("headgate.stores.shm.place.SHARED_MEMORY", Path(directory))
        yield


@pytest.mark.usefixtures("_own_shared_memory")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(blocks)
    names: dict[str, object] = {"__name__": f"docs_{page.stem}"}
    exec(compile(code, str(page), "exec"), names)  # noqa: S102 (our own pages)
    assert len(names) > 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing


def test_the_readme_has_code_to_run() -> None:
    assert ROOT / "README.md" in WITH_CODE
