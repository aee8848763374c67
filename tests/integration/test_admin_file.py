"""One policy file and several processes: nothing is lost, and a kill leaves the old or the new."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.control.editor import EditRequest, PolicyEditor
from headgate.control.edits import put_rule
from headgate.control.file_source import FileSource
from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.control.revision import Revision

ADA = EditRequest(author="ada")
RULE = {"key_by": "ip", "limit": "5/minute"}
EDITS = 6
WRITER = """
import asyncio, sys
from headgate.control.editor import PolicyEditor, EditRequest
from headgate.control.edits import put_rule
from headgate.control.file_source import FileSource

def main(path, name, times):
    editor = PolicyEditor(FileSource(path, may_be_missing=True))
    for n in range(times):
        rule = {"key_by": "ip", "limit": f"{n + 1}/minute", "description": "x" * 2_000}
        edited = editor.apply(put_rule(f"{name}-{n % 6}", rule), EditRequest(author=name))
        print(edited.revision.number, flush=True)

main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


class Writer:
    """A process that edits the file, and says the number of each revision it made."""

    def __init__(self, file: Path, name: str, *, times: int) -> None:
        command = [sys.executable, "-c", WRITER, str(file), name, str(times)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603

    def numbers(self) -> Iterator[int]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield int(line)

    def end(self) -> list[int]:
        """All numbers, once it has ended by itself."""
        numbers = list(self.numbers())
        assert self.process.wait(60) == 0
        self.close()
        return numbers

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.close()

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()


def newest(file: Path) -> Revision:
    return FileSource(file).head()


def test_no_edit_of_several_processes_is_lost_and_each_version_is_there_once(
    tmp_path: Path,
) -> None:
    file = tmp_path / "policy.yaml"
    writers = [Writer(file, name, times=EDITS) for name in ("a", "b", "c")]
    numbers = [number for writer in writers for number in writer.end()]
    assert sorted(numbers) == list(range(1, 3 * EDITS + 1))
    found = newest(file)
    assert found.number == 3 * EDITS
    expected = {f"{name}-{n}" for name in "abc" for n in range(EDITS)}
    assert {rule["id"] for rule in found.document["rules"]} == expected
    assert sorted(found.versions.values()) == sorted(numbers)
    assert {rule.id for rule in read_policy(file.read_bytes()).rules} == expected
    authors = [change.author for _, change in FileSource(file).history(most=100)]
    assert {name: authors.count(name) for name in "abc"} == dict.fromkeys("abc", EDITS)


def test_no_edit_of_several_threads_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    numbers: list[int] = []

    def write(name: str) -> None:
        editor = PolicyEditor(FileSource(file, may_be_missing=True))
        for n in range(EDITS):
            edited = editor.apply(put_rule(f"{name}-{n}", RULE), EditRequest(author=name))
            numbers.append(edited.revision.number)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 3 * EDITS + 1))
    assert len(newest(file).document["rules"]) == 3 * EDITS


@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_a_kill_leaves_the_old_or_the_new(tmp_path: Path, after: int) -> None:
    file = tmp_path / "policy.yaml"
    writer = Writer(file, "a", times=10_000)
    told = 0
    for told in writer.numbers():
        if told == after:
            break
    writer.kill()
    assert told == after
    read_policy(file.read_bytes())  # whole, whoever looks at it
    found = newest(file)
    # What was told is there, and at most the one that was under way.
    assert found.number in (after, after + 1)
    assert found.change.author == "a"
    edited = PolicyEditor(FileSource(file)).apply(put_rule("next", RULE), ADA)
    assert edited.revision.number == found.number + 1
    assert {path.name for path in tmp_path.iterdir()} == {"policy.yaml", "policy.yaml.history"}
    kept = json.loads((tmp_path / "policy.yaml.history" / f"{after}.json").read_text())
    assert kept["revision"]["number"] == after


def test_the_text_before_a_change_can_be_had_again(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    text = "# why: ticket 7\nversion: 1\nrules:\n  - {id: a, key_by: ip, limit: 5/m}\n"
    file.write_text(text)
    edited = PolicyEditor(FileSource(file)).apply(put_rule("b", RULE), ADA)
    assert edited.revision.number == 2
    kept = json.loads(Path(f"{file}.history", "1.json").read_text())
    assert kept["text"] == text
