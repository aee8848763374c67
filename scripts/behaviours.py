"""Keep `tests/BEHAVIOURS.md`, the list of behaviours that tests hold.

    python scripts/behaviours.py           write the list again; notes stay
    python scripts/behaviours.py --check   fail if list and tests disagree

The list has one line for each test function, whatever its parameters. A line is known by area,
class and function, not by file: a moved file changes nothing but a heading. A test that is gone
keeps its line, and the line says what became of the behaviour:

    - a denied request consumes nothing -> test_denials_are_free, test_denied_costs
    - the pot is poured once -- dropped: static sub-buckets are gone

`(x3)` marks a name that three files of an area use. If one of them goes, the line needs a note.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent
LIST = ROOT / "tests" / "BEHAVIOURS.md"
SOURCES = ("tests", "src/headgate/testing")

# The area of unit tests is their folder, but for these.
PACKAGES = {"testing": "test support", "cli": "command line"}

# The area of all other tests: the first pattern that a path below tests/ matches.
AREAS = (
    ("goldens", r"^golden/"),
    ("control", r"policy_storage|policy_reload|etcd|candidates"),
    ("test support", r"^support/|test_servers|test_proxy"),
    ("store contract", r"contract_|store_contract/|unit/.*test_contract"),
    ("store contract", r"contract/(test_(memory|redis|shm|layers)|layer_|leases|queues|slot_)"),
    ("store contract", r"contract/(constants|partial)"),
    ("algorithms", r"^property/.*(bucket|window|gcra|holds|leaky|clock|debt|test_concurrency)"),
    ("limits", r"^property/test_(scaling|shares)"),
    ("engine", r"engine|explain|priorities|shadows|quick_way|test_plan"),
    ("runtime", r"fallback|heartbeat|waiting"),
    ("limiter", r"limiter|limit_decorator|slots|errors|units"),
    ("overload", r"shaper|pressure|fair_queue|overload|rate_redis|backpressure|credits"),
    ("gateway", r"integration/test_gateway|property/gateways"),
    ("command line", r"test_cli_"),
    ("simulator", r"^property.*(simulator|replay)|^integration/test_simulation"),
    ("loadtest", r"loadtest"),
    ("service", r"serve_|test_serve\.|service|grpc|rls|rlqs|dashboard|admin"),
    ("clients", r"outgoing"),
    ("integrations", r"asgi|wsgi|fastapi|flask|django|starlette|uvicorn|llm_example"),
    ("observability", r"prometheus|monitoring"),
    ("stores", r"redis|regions|leased|lending|shm|memory|carry|quick_take"),
    ("policy", r"matching|identity"),
    ("responses", r"responses|header_lines"),
    ("fleets under faults", r"^faults/|^simulation/"),
    (
        "docs, deployment and packaging",
        r"docs|deploy|public_names|protos|behaviours|samples|complete|install|apt",
    ),
)
ELSEWHERE = "other"

LINE = re.compile(
    r"- (?P<label>.+?)(?: \(x(?P<copies>\d+)\))?"
    r"(?: -> (?P<held>.+)| -- dropped: (?P<dropped>.+))?"
)


@dataclass(frozen=True)
class Behaviour:
    area: str
    label: str


@dataclass
class Entry:
    """A line of the list."""

    topic: str
    copies: int = 1
    held: str | None = None  # tests that hold the behaviour in its stead
    dropped: str | None = None  # why nothing holds it any more

    def has_note(self) -> bool:
        return bool(self.held or self.dropped)

    def line(self, label: str) -> str:
        copies = f" (x{self.copies})" if self.copies > 1 else ""
        held = f" -> {self.held}" if self.held else ""
        dropped = f" -- dropped: {self.dropped}" if self.dropped else ""
        return f"- {label}{copies}{held}{dropped}"


Listing = dict[Behaviour, Entry]


# ---- the tests that there are ---------------------------------------------------------------


def find_tests() -> Listing:
    """Return every test function of the tree, parametrised ones once."""
    found: Listing = {}
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            area, topic = _area(path), path.stem.removeprefix("test_").replace("_", " ")
            for label in _labels(ast.parse(path.read_text(encoding="utf-8"))):
                behaviour = Behaviour(area, label)
                if behaviour in found:
                    found[behaviour].copies += 1
                else:
                    found[behaviour] = Entry(topic)
    return found


def _area(path: Path) -> str:
    inside = path.relative_to(ROOT).as_posix().removeprefix("tests/")
    if "contract" not in path.stem and (match := re.match(r"unit/(\w+)/", inside)):
        return PACKAGES.get(match[1], match[1])
    return next((area for area, pattern in AREAS if re.search(pattern, inside)), ELSEWHERE)


def _labels(module: ast.Module) -> Iterator[str]:
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _label("", node)
        elif isinstance(node, ast.ClassDef):
            prefix = node.name.removeprefix("Test") + ": "
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _label(prefix, part)
            if node.name.startswith("Test") and node.bases:
                yield f"{prefix}keeps {', '.join(_bases(node, classes))}"


def _label(prefix: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if node.name.startswith("test_"):
        yield prefix + node.name.removeprefix("test_").replace("_", " ")


def _bases(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the bases of a class that are not defined beside it."""
    for base in node.bases:
        name = ast.unparse(base)
        if name in classes and classes[name].bases:
            yield from _bases(classes[name], classes)
        else:
            yield name


# ---- the list -------------------------------------------------------------------------------


def read_list(text: str) -> Listing:
    listed: Listing = {}
    area = topic = ""
    for line in text.splitlines():
        if line.startswith("## "):
            area = line[3:].partition(" (")[0]
        elif line.startswith("### "):
            topic = line[4:]
        elif match := LINE.fullmatch(line):
            listed[Behaviour(area, match["label"])] = Entry(
                topic, int(match["copies"] or 1), match["held"], match["dropped"]
            )
    return listed


def write_list(entries: Listing) -> str:
    areas: dict[str, dict[str, list[str]]] = {}
    for behaviour, entry in sorted(entries.items(), key=lambda item: item[0].label):
        topics = areas.setdefault(behaviour.area, {})
        topics.setdefault(entry.topic, []).append(entry.line(behaviour.label))
    lines = ["# Behaviours", "", *_preamble()]
    for area in sorted(areas):
        lines += ["", f"## {area} ({sum(len(found) for found in areas[area].values())})"]
        for topic, found in sorted(areas[area].items()):
            lines += ["", f"### {topic}", "", *found]
    return "\n".join(lines) + "\n"


def _preamble() -> Iterator[str]:
    yield "One line for each test function, grouped by area and topic. `make behaviours` writes the"
    yield "lines and keeps the notes. A deleted test keeps its line, which then ends with"
    yield "`-> test_that_holds_it` or with `-- dropped: reason`. `make lint` checks both."


def merge(found: Listing, listed: Listing) -> Listing:
    """Return what to write: all tests, and what the list knows beyond them."""
    listed = follow_moves(found, listed)
    merged = dict(listed)
    for behaviour, entry in found.items():
        before = listed.get(behaviour, entry)
        complete = entry.copies >= before.copies
        merged[behaviour] = Entry(
            entry.topic,
            max(entry.copies, before.copies),
            None if complete else before.held,
            None if complete else before.dropped,
        )
    return merged


def follow_moves(found: Listing, listed: Listing) -> Listing:
    """Return the list with lines put under the area to which their test has moved."""
    new: dict[str, list[Behaviour]] = {}
    for behaviour in found.keys() - listed.keys():
        new.setdefault(behaviour.label, []).append(behaviour)
    moved: Listing = {}
    for behaviour, entry in listed.items():
        places = new.get(behaviour.label, [])
        gone = behaviour not in found and not entry.has_note()
        moved[places[0] if gone and len(places) == 1 else behaviour] = entry
    return moved


def problems(found: Listing, listed: Listing) -> Iterator[str]:
    names = _names(found)
    for behaviour, entry in listed.items():
        there = found[behaviour].copies if behaviour in found else 0
        if there < entry.copies and not entry.has_note():
            yield (
                f"{behaviour.area}: no test for {behaviour.label!r} any more. Add to its line"
                " `-> test_that_holds_it` or `-- dropped: reason`."
            )
        for name in (entry.held or "").split(", ") if entry.held else ():
            if _plain(name) not in names:
                yield f"{behaviour.area}: {behaviour.label!r} names {name!r}, which is no test."
    for behaviour, entry in found.items():
        if behaviour not in listed or listed[behaviour].copies < entry.copies:
            yield f"{behaviour.area}: {behaviour.label!r} is not listed. Run `make behaviours`."


def _names(found: Listing) -> Counter[str]:
    labels = [behaviour.label for behaviour in found]
    return Counter([*labels, *(label.partition(": ")[2] for label in labels if ": " in label)])


def _plain(name: str) -> str:
    return name.strip("` ").removeprefix("test_").replace("_", " ")


# ---- the command ----------------------------------------------------------------------------


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    options = parser.parse_args(None if arguments is None else list(arguments))
    found = find_tests()
    listed = read_list(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    if not options.check:
        listed = merge(found, listed)
        LIST.write_text(write_list(listed), encoding="utf-8")
        print(f"{len(found)} tests, {len(listed)} lines")
    wrong = sorted(problems(found, listed))
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
