"""`python -m scripts.differential`: release 0.1 and the working tree must decide alike.

Release 0.1 is built from the history and installed in an environment of its own, once. Random
cases then run in both, each in a process of its own, and every answer is compared. The first
difference is made small and printed, and the status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from scripts.differential.cases import KINDS, new_case
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

OLD_COMMIT: Final = "54bc012"
ROOT: Final = Path(__file__).parents[2]
WORKER: Final = Path(__file__).with_name("worker.py")
STEPS: Final = 40
SNAPPED_S = 5
"""Seconds by which a reset may be moved to the end of its window."""
PATIENCE_S: Final = 60
CLOCK_STEPS: Final = {"advance", "align", "wait"}


def old_python(commit: str, folder: Path) -> Path:
    """The interpreter of an environment with the wheel of *commit*; made if it is not there."""
    python = folder / commit / "bin" / "python"
    made = folder / commit / ".made"
    if made.exists():
        return python
    print(f"building {commit} into {folder / commit}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as work:
        archive = _run("git", "-C", str(ROOT), "archive", commit, stdout=subprocess.PIPE)
        source = Path(work) / "source"
        source.mkdir()
        _run("tar", "-x", "-C", str(source), input=archive.stdout)
        pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work)
        _run(*pip, str(source))
        (wheel,) = Path(work).glob("headgate-*.whl")
        _run(sys.executable, "-m", "venv", "--clear", str(folder / commit))
        _run(str(python), "-m", "pip", "install", "-q", f"{wheel}[redis,rules]")
    made.touch()
    return python


def _run(*call: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(call, check=True, **options)  # noqa: S603 - the arguments are our own


class Worker:
    """A process that runs cases with one of the two; *redis* is its URL."""

    def __init__(self, python: str, adapter: str, redis: str) -> None:
        self._redis = redis
        self._process = subprocess.Popen(  # noqa: S603 - the arguments are our own
            [python, str(WORKER), adapter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def send(self, case: Json) -> None:
        stores = {"memory": "memory://", "redis": self._redis}
        line = json.dumps({**case, "store": stores[case["store"]]})
        stdin = self._pipe(self._process.stdin)
        stdin.write(f"{line}\n")
        stdin.flush()

    def answers(self) -> list[Any]:
        stdout = self._pipe(self._process.stdout)
        ready, _, _ = select.select([stdout], [], [], PATIENCE_S)
        line = stdout.readline() if ready else ""
        if not line:
            raise RuntimeError("a worker ended, or did not answer")
        answers: list[Any] = json.loads(line)
        return answers

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


class Pair:
    """Both workers."""

    def __init__(self, old: Worker, new: Worker) -> None:
        self.old, self.new = old, new
        self._runs = itertools.count()

    def answers(self, case: Json) -> list[tuple[Any, Any]]:
        """What both say to the case, with counters that no other run has used."""
        case = {**case, "namespace": f"{case['namespace']}-{next(self._runs)}"}
        self.old.send(case)
        self.new.send(case)
        old, new = self.old.answers(), self.new.answers()
        return list(itertools.zip_longest(old, new, fillvalue="no answer"))

    def difference(self, case: Json) -> int | None:
        """The place of the first answer that differs: 0 is for what is made before the steps."""
        pairs = self.answers(case)
        return next((n for n, (old, new) in enumerate(pairs) if not _is_alike(old, new)), None)

    def shrunk(self, case: Json) -> Json:
        """A smaller case that differs, if leaving out steps and rules makes one."""
        while True:
            for smaller in _smaller(case):
                place = self.difference(smaller)
                if place is not None:
                    case = {**smaller, "steps": smaller["steps"][:place]}
                    break
            else:
                return case


def _is_alike(old: Any, new: Any) -> bool:
    """True if both are equal, but for resets: those of aligned windows are at their ends now."""
    match old, new:
        case dict(), dict():
            return old.keys() == new.keys() and all(_is_alike(old[key], new[key]) for key in old)
        case [str(name), str(before)], [str(other), str(after)] if name == other:
            is_reset = name.lower() == "x-ratelimit-reset"
            return before == after or (is_reset and abs(int(before) - int(after)) <= SNAPPED_S)
        case list(), list():
            return len(old) == len(new) and all(map(_is_alike, old, new))
    return bool(old == new)


def _smaller(case: Json) -> Iterator[Json]:
    """*case* without one of its steps, rules or limits, or other parts of its policy."""
    steps = case["steps"]
    for place in reversed(range(len(steps) - 1)):
        yield {**case, "steps": steps[:place] + steps[place + 1 :]}
    policy = case.get("policy", {})
    for name in ("overrides", "priority", "identity"):
        if name in policy:
            yield {**case, "policy": {key: policy[key] for key in policy if key != name}}
    rules = policy.get("rules", [])
    for place, rule in enumerate(rules):
        if len(rules) > 1:
            fewer = rules[:place] + rules[place + 1 :]
            yield {**case, "policy": {**policy, "rules": fewer}}
        for name in ("match", "cost", "mode", "headers", "idempotency"):
            if name in rule:
                plain = {key: rule[key] for key in rule if key != name}
                changed = [*rules[:place], plain, *rules[place + 1 :]]
                yield {**case, "policy": {**policy, "rules": changed}}
    limits = case.get("limits", [])
    if isinstance(limits, list) and len(limits) > 1:
        for place in range(len(limits)):
            yield {**case, "limits": limits[:place] + limits[place + 1 :]}


def differing(old: Any, new: Any, path: str = "answer") -> Iterator[str]:
    """The parts in which two answers differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            yield from differing(old.get(name), new.get(name), f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differing(one, other, f"{path}[{place}]")
    elif old != new:
        yield f"  {path}\n    0.1: {json.dumps(old)}\n    now: {json.dumps(new)}"


def report(pair: Pair, case: Json, seed: str) -> None:
    place = pair.difference(case)
    if place is None:
        print(f"seed {seed}: a difference that did not show again", file=sys.stderr)
        return
    small = pair.shrunk({**case, "steps": case["steps"][:place]})
    old, new = pair.answers(small)[-1]
    subject = {key: small[key] for key in ("policy", "limits", "headers") if key in small}
    print(f"\nDIFFERENCE in case {seed} ({small['kind']}, {small['store']})")
    print(json.dumps(subject, indent=2))
    print(f"clock starts at {small['start']}; history:")
    for step in small["steps"]:
        print(f"  {json.dumps(step)}")
    print("the last one differs:" if small["steps"] else "it differs when it is made:")
    print("\n".join(differing(old, new)))


def compare(pair: Pair, options: argparse.Namespace) -> int:
    """Run cases until enough checks are compared; the status."""
    began = time.monotonic()
    counts: Counter[str] = Counter()
    for number in itertools.count(options.first):
        if counts["checks"] >= options.checks or number == options.first + options.cases:
            break
        seed = f"{options.seed}-{number}"
        case = new_case(seed, tuple(options.kinds), tuple(options.stores), STEPS)
        pairs = pair.answers(case)
        if not all(_is_alike(old, new) for old, new in pairs):
            report(pair, case, seed)
            return 1
        _count(counts, case, [old for old, _ in pairs])
    seconds = time.monotonic() - began
    cases = ", ".join(f"{counts[kind]} {kind}" for kind in options.kinds)
    print(
        f"{counts['checks']:,} checks alike in {seconds:.0f} s: {counts['denied']:,} denied, "
        f"{counts['raised']:,} errors; cases: {cases}; {counts['invalid']} invalid"
    )
    return 0


def _count(counts: Counter[str], case: Json, answers: list[Any]) -> None:
    counts[case["kind"]] += 1
    if answers[0] != "made":
        counts["invalid"] += 1
    for step, answer in zip(case["steps"], answers[1:], strict=False):
        if step[0] not in CLOCK_STEPS:
            counts["checks"] += 1
        if isinstance(answer, dict):
            counts["raised"] += "raised" in answer
            status = str(answer.get("status", ""))
            counts["denied"] += answer.get("allowed") is False or status.startswith(("4", "5"))


def main() -> int:
    options = _parser().parse_args()
    python = old_python(options.old, options.folder)
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer()) if "redis" in options.stores else None
        url = redis.bare_url.removesuffix("/0") if redis else "redis://127.0.0.1"
        old = Worker(str(python), "adapter_0_1", f"{url}/1?timeout=5")
        new = Worker(sys.executable, "adapter_current", f"{url}/2?timeout=5")
        stack.enter_context(old)
        stack.enter_context(new)
        return compare(Pair(old, new), options)


def _parser() -> argparse.ArgumentParser:
    def words(known: tuple[str, ...]) -> Any:
        def read(text: str) -> list[str]:
            chosen = text.split(",")
            if not set(chosen) <= set(known):
                raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}")
            return chosen

        return read

    stores = ("memory", "redis")
    parser = argparse.ArgumentParser(prog="python -m scripts.differential", description=__doc__)
    parser.add_argument("--checks", type=int, default=20_000, help="how many to compare")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=-1, help="no more than so many cases")
    parser.add_argument("--kinds", type=words(KINDS), default=list(KINDS), help=",".join(KINDS))
    parser.add_argument("--stores", type=words(stores), default=list(stores))
    parser.add_argument("--old", default=OLD_COMMIT, help="the commit to compare with")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".venv" / "differential", help="its environment"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
