"""`headgate rules explain` on rules that delay, have slots, take turns or give way to pressure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headgate.cli import main

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
version: 1
priority:
  - {class: critical, match: {endpoint: /pay}}
  - {class: sheddable, match: {tier: free}}
pressure: {latency: 1s}
rules:
  - {id: queue, key_by: ip, shape: {rate: 10/s, queue: 2}}
  - id: slots
    key_by: global
    concurrency:
      limit: 20
      share_by: tier
      shares: {gold: 25%}
      reserve: {critical: 20%, default: 30%}
  - id: turns
    key_by: ip
    fair: {slots: 10, weights: {gold: 4}, max_wait: 2s, reserve: {critical: 20%}}
  - {id: moving, key_by: ip, fair: {slots: {adaptive: aimd, min: 2, max: 9}, queue: 0}}
  - {id: paced, key_by: ip, fair: {rate: 5/3s}}
  - {id: yielding, key_by: ip, limit: 100/s, adaptive: {floor: 12.5%}}
"""


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return str(path)


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[str]]:
    """What is said of the request and of each rule, line by line."""
    main(["rules", "explain", *arguments])
    parts = capsys.readouterr().out.split("\n\n")
    return {part.split()[0]: [line.strip() for line in part.split("\n")] for part in parts}


def test_it_tells_the_delay(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = explained(capsys, rules, "/")["queue"]
    assert first[0] == "queue allows it"
    assert "delay       none, at most 200ms" in first
    third = explained(capsys, rules, "/", "--repeat", "3")
    assert third["queue"][0] == "queue allows it after 200ms"
    assert "delay       it waits 200ms in the queue, at most 200ms" in third["queue"]
    told = "Allowed after a wait of 200ms and, in apps, in its queue."
    assert third["Allowed"][0] == told
    fourth = explained(capsys, rules, "/", "--repeat", "4")
    assert fourth["queue"][0] == "queue denies it for 100ms"
    assert not any(line.startswith("delay") for line in fourth["queue"])


@pytest.mark.parametrize(
    ("asked", "kind", "most"),
    [
        (["/pay", "--tier", "free"], "critical", 20),
        (["/"], "default", 16),
        (["/", "--tier", "free"], "sheddable", 10),
    ],
)
def test_it_tells_the_class_and_what_it_may_use(
    rules: str, capsys: pytest.CaptureFixture[str], asked: list[str], kind: str, most: int
) -> None:
    found = explained(capsys, rules, *asked)
    assert f"class       {kind}" in found["GET"]
    reserved = "20% for critical requests and 30% for default requests are reserved"
    assert f"ceiling     {most} of 20 slots for class {kind}; {reserved}" in found["slots"]


def test_it_tells_the_share(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = "share       5 of 20 slots are guaranteed to gold; idle ones may be borrowed"
    assert own in explained(capsys, rules, "/", "--tier", "gold")["slots"]
    none = "share       none by tier: 15 slots are shared by all; idle ones may be borrowed"
    assert none in explained(capsys, rules, "/", "--tier", "free")["slots"]


def test_it_tells_how_it_takes_turns(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, rules, "/", "--tier", "gold")
    assert found["turns"] == [
        "turns queues it",
        "counted by  ip: 127.0.0.1, the peer",
        "key         ip=127.0.0.1",
        "turns       10 at the same time, in each process",
        "weight      4, relative to the other waiting requests",
        "waits       behind at most 100 of the same key, at most 2s",
        "ceiling     8 of 10 slots for class default; 20% for critical requests are reserved",
        "cost        1",
    ]
    assert "turns       2 to 9 at the same time, adjusted by aimd" in found["moving"][3]
    assert "waits       never: denied without a free slot" in found["moving"]
    assert "turns       5 per 3 seconds, in each process" in found["paced"]


def test_who_is_sheddable_never_waits(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, rules, "/", "--tier", "free")
    told = "waits       never, because it is sheddable: denied without a free slot"
    assert told in found["turns"]


def test_turns_alone_are_something_that_applies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrules: [{id: a, key_by: ip, fair: {slots: 1}}]")
    found = explained(capsys, str(path), "/")
    assert found["Allowed,"][0] == "Allowed, in apps through a queue."
    assert found["Allowed,"][1].startswith("Apps add Headgate-Queue")


def test_it_tells_the_floor(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "floor       pressure may lower these limits to 12.5%"
        in explained(capsys, rules, "/")["yielding"]
    )


def test_turns_in_shadow_are_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrules: [{id: a, key_by: ip, fair: {slots: 1}, mode: shadow}]")
    found = explained(capsys, str(path), "/")
    assert found["a"][0] == "a (shadow) does not apply: in shadow no request waits"


def test_all_of_it_is_there_as_data(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "explain", rules, "/", "--repeat", "3", "--tier", "gold", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["delay"] == 0.2
    assert found["request"]["class"] == "default"
    by_id = {one["id"]: one for one in found["rules"]}
    assert by_id["queue"]["limits"][0]["delay"] == 0.2
    assert set(by_id["slots"]["soft"]) == {"share", "ceiling"}
    assert (by_id["turns"]["applies"], by_id["turns"]["weight"]) == (True, 4)
    assert by_id["turns"]["soft"]["weight"].startswith("4,")
    assert set(by_id["yielding"]["soft"]) == {"floor"}


def test_without_priorities_nothing_is_said_of_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrules: [{id: a, key_by: ip, limit: 5/s}]")
    assert not any(line.startswith("class") for line in explained(capsys, str(path), "/")["GET"])
