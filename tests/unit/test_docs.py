"""The code that README.md and docs/ show is code that runs."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

from headgate.policy.loader import read_policy
from scripts.doc_samples import PAGES, ROOT, units

UNITS = [
    pytest.param(page, unit, id=f"{page.name}-{number}")
    for page in PAGES
    for number, unit in enumerate(units(page))
]
POLICY = re.compile(r"^(rules:$|pressure:|priority:)", re.MULTILINE)
POLICIES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
    if POLICY.search(block)
]


@pytest.fixture
def _own_shared_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores in shared memory that are gone afterwards, and are nobody else's."""
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("headgate.stores.shm.file.SHARED_MEMORY", Path(directory))
        yield


@pytest.mark.usefixtures("_own_shared_memory")
@pytest.mark.parametrize(("page", "code"), UNITS)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(f"docs_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # frameworks look annotations up
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)  # Litestar sets up handlers
    names, before = vars(module), {*vars(module), "__builtins__"}
    exec(compile(code, str(page), "exec"), names)  # noqa: S102 (our own pages)
    assert names.keys() - before


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_to_sections_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    local = [(target, anchor) for target, anchor in links if "://" not in target]
    assert not [
        f"{target}#{anchor}"
        for target, anchor in local
        if anchor not in _sections((page.parent / target) if target else page)
    ]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_a_page_shows_can_be_used_as_it_is(policy: str) -> None:
    assert read_policy(policy).rules


def _sections(page: Path) -> set[str]:
    """The anchors of the headings of *page*, as forges make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def test_the_readme_has_code_to_run() -> None:
    assert units(ROOT / "README.md")


def test_the_list_of_decisions_has_the_title_and_state_of_each() -> None:
    decisions = ROOT / "docs" / "adr"
    listed = (decisions / "README.md").read_text(encoding="utf-8")
    for page in sorted(decisions.glob("0*.md")):
        title, _, first = page.read_text(encoding="utf-8").splitlines()[:3]
        number, name = re.fullmatch(r"# (\d{4}): (.*?)(?: \(superseded\))?", title).groups()  # type: ignore[union-attr]
        [row] = re.findall(rf"^\| \[{number}\]\({page.name}\) \| (.*) \|$", listed, re.MULTILINE)
        said, state = row.rsplit(" | ", 1)
        assert said == name
        assert ("superseded" in first.lower().split(" by ")[0]) == ("superseded" in state), page
