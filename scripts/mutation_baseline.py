"""Change the code in places chosen by a seed, and record which changes the tests notice.

    nice -n 15 python scripts/mutation_baseline.py            all packages, about 40 minutes
    nice -n 15 python scripts/mutation_baseline.py engine     one of them again
    nice -n 15 python scripts/mutation_baseline.py --resume   what the record lacks

The record is `tests/mutation_baseline.json`: the figures of each package, and every mutant with its
verdict. Mutants differ as soon as code does, so compare the share of killed mutants of a package,
not single mutants. A redesigned package has to reach the recorded share.

How it works. The tree is copied. For each package the script picks statements in function bodies
and runs the package's tests once with a probe before each of them: that shows which tests reach
which place, how long they take, and which fail anyway. Then it applies one mutation at a time and
runs, for at most `--budget` seconds, tests that reach the place. A mutant that no test reaches
survives. One that fails a test, breaks collection or runs into a time limit is killed. Selection
depends on measured times, so a rare mutant may get another verdict in another run.

This is no part of `make check`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from _pytest.config import default_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Change these tables when code or tests move: what each package consists of, and which tests are
# about it. Tests that start servers of their own are slow; name them only where nothing else holds
# the behaviour.
SOURCES: dict[str, tuple[str, ...]] = {
    "algorithms": ("src/headgate/algorithms",),
    "stores": ("src/headgate/stores",),
    "engine": ("src/headgate/engine",),
    "policy": ("src/headgate/policy",),
    "responses": ("src/headgate/responses",),
    "integrations": ("src/headgate/integrations",),
}
TESTS: dict[str, tuple[str, ...]] = {
    "algorithms": (
        "tests/unit/algorithms",
        "tests/property/test_*bucket*.py",
        "tests/property/test_*window*.py",
        "tests/property/test_[bcdg]*_property.py",
        "tests/property/test_[hl]*_property.py",
        "tests/contract/test_memory.py::TestMemoryStoreWithoutShortCut",
    ),
    "stores": (
        "tests/unit/stores",
        "tests/contract/test_memory.py",
        "tests/contract/test_redis.py::TestRedisStore",
        "tests/contract/test_redis.py::TestAsyncRedisStore",
        "tests/contract/test_layers.py::TestLeases",
        "tests/contract/test_layers.py::TestAsyncLeases",
        "tests/contract/test_layers.py::TestBreakerForEachPart",
        "tests/contract/test_layers.py::TestAsyncRegions",
        "tests/contract/test_layers.py::TestAllLayers",
        "tests/unit/runtime/test_interruption.py",
        "tests/integration/test_redis_transport.py",
        "tests/integration/test_redis_transport_trouble.py",
        "tests/integration/test_redis_faults.py",
        "tests/integration/test_redis_cluster.py",
        "tests/integration/test_cli_keys.py",
    ),
    "engine": (
        "tests/unit/engine",
        "tests/unit/decisions",
        "tests/unit/test_limiter*",
        "tests/unit/service/rls",
        "tests/unit/observability",
        "tests/unit/integrations/test_turns.py",
        "tests/unit/integrations/asgi/test_debugging.py",
        "tests/unit/cli/test_rules_explain*",
    ),
    "policy": ("tests/unit/policy", "tests/unit/engine"),
    "responses": ("tests/unit/responses", "tests/unit/integrations/asgi"),
    "integrations": ("tests/unit/integrations", "tests/unit/clients"),
}

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "tests" / "mutation_baseline.json"
OUTSIDE = (
    "django",
    "fastapi",
    "flask",
    "httpx",
    "hypothesis",
    "redis",
    "requests",
    "starlette",
    "yaml",
)
"""Packages that are imported once, before each run of tests is forked off."""
PYTEST = ("-q", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore:Module already imported")
MOST_OF_A_KIND = 10
MOST_FILES = 6
MOST_TESTS = 60

Verdict = str


# ---- mutations ------------------------------------------------------------------------------

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


def mutation_of(node: ast.AST) -> tuple[str, str] | None:
    """Return what may be done to *node*, if anything: the kind of mutation and the new code."""
    for kind, change in KINDS:
        if (new := change(node)) is not None:
            return kind, new
    return None


def _compare(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in SWAPS:
        return None
    changed = copy.deepcopy(node)
    changed.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    return ast.unparse(changed)


def _boolean(node: ast.AST) -> str | None:
    if isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        return f"({ast.unparse(changed)})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"bool({ast.unparse(node.operand)})"
    if isinstance(node, ast.IfExp):
        changed_if = copy.deepcopy(node)
        changed_if.body, changed_if.orelse = changed_if.orelse, changed_if.body
        return f"({ast.unparse(changed_if)})"
    return None


def _constant(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Constant):
        return None
    if isinstance(node.value, bool):
        return str(not node.value)
    return str(node.value + 1) if isinstance(node.value, int) else None


def _arithmetic(node: ast.AST) -> str | None:
    if not isinstance(node, ast.BinOp) or type(node.op) not in SWAPS or _is_text(node):
        return None
    changed = copy.deepcopy(node)
    changed.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    return f"({ast.unparse(changed)})"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )


def _result(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    is_none = isinstance(node.value, ast.Constant) and node.value.value is None
    return "return True" if is_none else "return None"


def _removal(node: ast.AST) -> str | None:
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    return "pass" if is_call or isinstance(node, ast.AugAssign) else None


KINDS: tuple[tuple[str, Callable[[ast.AST], str | None]], ...] = (
    ("comparison", _compare),
    ("boolean", _boolean),
    ("constant", _constant),
    ("arithmetic", _arithmetic),
    ("result", _result),
    ("removal", _removal),
)


UNTOUCHED = (ast.Assert, ast.Raise, ast.AnnAssign, ast.JoinedStr, ast.pattern, ast.arguments)
"""Nodes that are left alone: checks of types, wording of errors, signatures."""


# ---- places ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A mutation of one expression or statement, *kind*, in a function of a file."""

    path: str
    name: str
    kind: str
    old: str
    new: str
    span: tuple[int, int, int, int]  # first line and column, last line and column, in bytes
    probe: int  # the line before which a probe stands

    def text(self) -> str:
        path = self.path.removeprefix("src/")
        return f"{path}: {self.name}: {_short(self.old)} => {_short(self.new)}"


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 100 else f"{one_line[:97]}..."


def places_in(path: Path) -> Iterator[Place]:
    """Yield every place of a file that can be mutated."""
    source = path.read_text(encoding="utf-8")
    relative = path.relative_to(ROOT).as_posix()
    lines = source.splitlines()
    for name, function in _functions(ast.parse(source), ""):
        for statement, node in _nodes(function):
            mutation = mutation_of(node)
            if mutation is None:
                continue
            kind, new = mutation
            if lines[statement.lineno - 1].lstrip().startswith(("elif", "@")):
                continue
            old = ast.get_source_segment(source, node) or ""
            yield Place(relative, name, kind, old, new, _span(node), statement.lineno)


def _span(node: Any) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name != "__repr__":
                yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _nodes(function: ast.AST) -> Iterator[tuple[ast.stmt, ast.AST]]:
    """Yield the nodes of a function's body, each with the statement that it is in."""
    body: list[ast.stmt] = getattr(function, "body", [])
    todo: list[tuple[ast.stmt, ast.AST]] = [(statement, statement) for statement in body]
    while todo:
        statement, node = todo.pop()
        if isinstance(node, UNTOUCHED):
            continue
        yield statement, node
        children = ast.iter_child_nodes(node)
        todo += [(child if isinstance(child, ast.stmt) else statement, child) for child in children]


def choose(package: str, count: int, seed: int) -> list[Place]:
    """Return *count* places of a package, at most one for each line and few of one kind."""
    found = [
        place
        for directory in SOURCES[package]
        for path in sorted((ROOT / directory).rglob("*.py"))
        for place in places_in(path)
    ]
    found.sort(key=lambda place: (place.path, place.span))
    random.Random(f"{seed} {package}").shuffle(found)
    kinds: Counter[str] = Counter()
    chosen: dict[tuple[str, int], Place] = {}
    for place in found:
        line = place.path, place.probe
        if line not in chosen and kinds[place.kind] < MOST_OF_A_KIND and len(chosen) < count:
            chosen[line] = place
            kinds[place.kind] += 1
    return list(chosen.values())


# ---- the copied tree ------------------------------------------------------------------------

PLUGIN = """
import json, os, time
import pytest

reached, times, failed, current = {}, {}, set(), [None]

def hit(number):
    if current[0] is not None:
        reached.setdefault(number, {})[current[0]] = None

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    current[0], began = item.nodeid, time.process_time()
    yield
    times[item.nodeid] = time.process_time() - began
    current[0] = None

def pytest_runtest_logreport(report):
    if report.outcome != "passed":
        failed.add(report.nodeid)

def pytest_sessionfinish():
    data = {"reached": {n: list(tests) for n, tests in reached.items()}, "times": times}
    with open(os.environ["PROBE_OUTPUT"], "w") as file:
        json.dump({**data, "failed": sorted(failed)}, file)
"""


class Tree:
    """A copy of the working tree in which files are changed and put back."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        self.original = directory.with_name("original")
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],  # noqa: S607
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, directory / name)
        shutil.copytree(directory / "src", self.original / "src")
        (directory / "src" / "mutation_probe.py").write_text(PLUGIN, encoding="utf-8")

    def with_probes(self, places: list[Place]) -> None:
        """Put a probe before the statement of each place."""
        by_file: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, place in enumerate(places):
            by_file[place.path].append((place.probe, number))
        for name, probes in by_file.items():
            path = self.root / name
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            for line, number in sorted(probes, reverse=True):
                code = lines[line - 1]
                indent = code[: len(code) - len(code.lstrip())]
                probe = f'{indent}__import__("mutation_probe").hit({number})\n'
                lines.insert(line - 1, probe)
            path.write_text("".join(lines), encoding="utf-8")

    def mutate(self, place: Place) -> None:
        lines = (self.root / place.path).read_bytes().splitlines(keepends=True)
        first, start, last, end = place.span
        new = place.new.encode()
        lines[first - 1 : last] = [lines[first - 1][:start] + new + lines[last - 1][end:]]
        (self.root / place.path).write_bytes(b"".join(lines))

    def restore(self, places: list[Place]) -> None:
        for name in {place.path for place in places}:
            shutil.copy2(self.original / name, self.root / name)

    def pytest(self, arguments: list[str], *, cpu: int, wall: int, output: Path) -> int:
        """Run tests in a child process; return pytest's code, or -1 if a limit was reached."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._be_pytest(arguments, cpu, output)
        try:
            return max(_wait(child, wall), -1)
        finally:
            try:
                os.killpg(child, signal.SIGKILL)  # the child, and servers that its tests left
                os.waitpid(child, 0)
            except (ProcessLookupError, ChildProcessError):
                pass

    def _be_pytest(self, arguments: list[str], cpu: int, output: Path) -> None:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        log = os.open(output.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        os.chdir(self.root)
        os.environ |= {
            "PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PROBE_OUTPUT": str(output),
            "CI": "1",  # property tests try the same examples each time
        }
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(self.root / "src"), str(self.root)]
        code = 3
        try:
            code = int(pytest.main([*arguments, *PYTEST]))
        except BaseException:  # noqa: BLE001 (whatever it is, the child ends here)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _wait(child: int, wall: int) -> int:
    """Return the exit code of *child*; negative if it was stopped or does not end in time."""
    deadline = time.monotonic() + wall
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return -1


# ---- a package ------------------------------------------------------------------------------


class Reach(NamedTuple):
    """Which tests reach which place, and how long a test takes."""

    tests: dict[int, list[str]]
    times: dict[str, float]


def measure(tree: Tree, package: str, places: list[Place], scratch: Path) -> Reach:
    output = scratch / f"{package}.json"
    tree.with_probes(places)
    present = [test for pattern in TESTS[package] for test in _tests_like(pattern)]
    tree.pytest(["-p", "mutation_probe", *present], cpu=3600, wall=7200, output=output)
    tree.restore(places)
    if not output.exists():
        log = output.with_suffix(".log").read_text(encoding="utf-8")
        raise SystemExit(f"The tests of {package} did not run:\n{log[-2000:]}")
    data = json.loads(output.read_text(encoding="utf-8"))
    failed = set(data["failed"])
    for test in sorted(failed):
        print(f"  fails without a mutation: {test}", flush=True)
    tests = {
        int(number): [test for test in found if test not in failed]
        for number, found in data["reached"].items()
    }
    return Reach(tests, data["times"])


def _tests_like(pattern: str) -> list[str]:
    """Return the arguments of pytest that *pattern* stands for; none if there is no such file."""
    path, separator, name = pattern.partition("::")
    found = sorted(ROOT.glob(path))
    return [f"{one.relative_to(ROOT).as_posix()}{separator}{name}" for one in found]


def select(tests: list[str], times: dict[str, float], budget: float) -> list[str]:
    """Return quick tests that fit the budget, from the files that reach the place most often."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: (times.get(test, 0.0), test)):
        files[test.partition("::")[0]].append(test)
    most = sorted(files, key=lambda file: (-len(files[file]), file))[:MOST_FILES]
    chosen: list[str] = []
    spent = 0.0
    while any(files[file] for file in most) and len(chosen) < MOST_TESTS:
        for file in most:
            if not files[file]:
                continue
            test = files[file].pop(0)
            spent += times.get(test, 0.0)
            if chosen and spent > budget:
                return chosen
            chosen.append(test)
    return chosen


def judge(tree: Tree, place: Place, tests: list[str], scratch: Path) -> Verdict:
    if not tests:
        return "not reached"
    tree.mutate(place)
    try:
        code = tree.pytest(["-x", *tests], cpu=60, wall=600, output=scratch / "mutant")
    finally:
        tree.restore([place])
    return {0: "survived", -1: "killed (time limit)"}.get(code, "killed")


def check_unchanged(tree: Tree, package: str, chosen: list[list[str]], scratch: Path) -> None:
    """Stop unless the tests pass, alone and in this order, on code that is as it was."""
    some = next(filter(None, chosen), [])
    if some and tree.pytest(["-x", *some], cpu=600, wall=3600, output=scratch / "control"):
        log = (scratch / "control.log").read_text(encoding="utf-8")
        raise SystemExit(f"The tests of {package} fail without a mutation:\n{log[-2000:]}")


def run_package(
    tree: Tree, package: str, options: argparse.Namespace, scratch: Path, record: Record
) -> None:
    places = choose(package, options.mutants, options.seed)
    print(f"{package}: {len(places)} places", flush=True)
    places = [place for place in places if not record.has(package, place)]
    if not places:
        return
    reach = measure(tree, package, places, scratch)
    chosen = [
        select(reach.tests.get(number, []), reach.times, options.budget)
        for number in range(len(places))
    ]
    check_unchanged(tree, package, chosen, scratch)
    for place, tests in zip(places, chosen, strict=True):
        verdict = judge(tree, place, tests, scratch)
        print(f"  {verdict}: {place.text()}", flush=True)
        record.add(package, place, verdict)
    print(record.figures(package), flush=True)


# ---- the record -----------------------------------------------------------------------------


class Record:
    """The verdicts, on disk after each of them: a run that is stopped goes on with --resume."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._head = {"seed": options.seed, "budget": options.budget}
        self._is_kept = not options.dry_run
        self._verdicts: dict[str, dict[str, dict[str, str]]] = {}
        if RECORD.exists() and (options.resume or options.packages):
            self._read(options)

    def _read(self, options: argparse.Namespace) -> None:
        recorded = json.loads(RECORD.read_text(encoding="utf-8"))
        if {key: recorded.get(key) for key in self._head} != self._head:
            raise SystemExit("The record is of another seed or budget: start without --resume.")
        again = () if options.resume else options.packages
        for package in recorded.keys() & SOURCES.keys() - set(again):
            found = recorded[package]["verdicts"]
            self._verdicts[package] = {one["mutant"]: one for one in found}

    def has(self, package: str, place: Place) -> bool:
        return place.text() in self._verdicts.get(package, {})

    def add(self, package: str, place: Place, verdict: Verdict) -> None:
        one = {"mutant": place.text(), "kind": place.kind, "verdict": verdict}
        self._verdicts.setdefault(package, {})[place.text()] = one
        if self._is_kept:
            self._write()

    def figures(self, package: str) -> str:
        counts = self._counts(package)
        return f"{package}: {counts['killed']} of {counts['mutants']} killed"

    def _counts(self, package: str) -> dict[str, int]:
        found = [one["verdict"] for one in self._verdicts.get(package, {}).values()]
        killed = sum(verdict.startswith("killed") for verdict in found)
        return {
            "mutants": len(found),
            "killed": killed,
            "survived": found.count("survived"),
            "not reached": found.count("not reached"),
        }

    def _write(self) -> None:
        """Write one line for each mutant."""
        parts = [f' "{key}": {value}' for key, value in self._head.items()]
        for package, found in sorted(self._verdicts.items()):
            lines = ",\n".join(f"   {json.dumps(found[name])}" for name in sorted(found))
            figures = json.dumps(self._counts(package))[1:-1]
            parts.append(f' "{package}": {{{figures}, "verdicts": [\n{lines}\n  ]}}')
        RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


# ---- the command ----------------------------------------------------------------------------


def load_outside() -> None:
    """Import what every run of tests needs, so that a forked child starts at once."""
    for plugin in (*default_plugins, *OUTSIDE):
        __import__(plugin if plugin in OUTSIDE else f"_pytest.{plugin}")
    for entry in entry_points(group="pytest11"):
        if entry.name != "valkey":  # switched off in pyproject.toml
            entry.load()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="*", help=f"some of: {', '.join(SOURCES)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=40, help="in each package")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of tests for a mutant")
    parser.add_argument("--resume", action="store_true", help="keep the verdicts of the record")
    parser.add_argument("--dry-run", action="store_true", help="write no record")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stop tests and remove the copy first
    load_outside()
    record = Record(options)
    packages = options.packages or list(SOURCES)
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        scratch = Path(directory)
        tree = Tree(scratch / "tree")
        for package in packages:
            run_package(tree, package, options, scratch, record)
    for package in packages:
        print(record.figures(package))
    return 0


if __name__ == "__main__":
    sys.exit(main())
