"""What docs/limits.md says is what the algorithms do."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.pictures.gallery.attack import ATTACKED, attacked
from scripts.pictures.gallery.storm import BEHAVIOURS, storm
from scripts.pictures.gallery.subjects import ALL, QUEUE, SUBJECTS, Subject
from scripts.pictures.gallery.subjects import run as run_anew
from scripts.pictures.gallery.traffic import Course, arrivals, in_seconds

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
BY_NAME = {subject.name: subject for subject in ALL}


@cache
def run(subject: Subject) -> Course:
    return run_anew(subject)


def _names(subjects: tuple[Subject, ...]) -> list[str]:
    return [subject.name for subject in subjects]


@pytest.mark.parametrize("subject", ALL, ids=_names(ALL))
def test_the_table_of_the_page_tells_what_came_of_it(subject: Subject) -> None:
    course = run(subject)
    anchor = re.sub(r"[^\w\- ]", "", subject.title.lower()).replace(" ", "-")
    row = re.search(rf"\(#{anchor}\) \| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text("utf-8"))
    assert row is not None
    told = (len(course.admitted), course.most_in_a_window, course.most_within(1))
    assert tuple(map(int, row.groups())) == told
    assert len(course.came) == len(course.admitted) + len(course.refused)


def test_all_meet_the_same_requests() -> None:
    came = [in_seconds(at) for at in arrivals()]
    assert all(run(subject).came == came for subject in ALL)


def test_buckets_by_any_name_admit_the_same() -> None:
    bucket = run(BY_NAME["token-bucket"]).admitted
    assert run(BY_NAME["leaky-bucket"]).admitted == bucket
    assert run(BY_NAME["gcra"]).admitted == bucket


def test_what_leaves_the_queue_is_a_second_apart() -> None:
    left = run(QUEUE).admitted
    assert min(later - sooner for sooner, later in pairwise(left)) > 0.999999


@pytest.mark.parametrize("subject", SUBJECTS, ids=_names(SUBJECTS))
def test_no_state_leaves_its_frame(subject: Subject) -> None:
    states = [state for _, state in run(subject).state]
    assert min(states) >= -1e-6
    assert max(states) <= subject.bound + 1e-6


def test_only_the_fixed_window_falls_for_the_boundary_attack() -> None:
    worst = {subject.name: attacked(subject).most_in_a_window for subject in ATTACKED}
    assert worst == {
        "fixed-window": 20,
        "sliding-window-log": 10,
        "sliding-window-counter": 11,
        "token-bucket": 12,
    }


def test_who_comes_again_later_is_refused_less_often() -> None:
    refused = [sum(storm(waiting).refused) for _, waiting in BEHAVIOURS]
    assert f"{refused[0]:,} denials" in PAGE.read_text("utf-8")
    assert refused[1] == pytest.approx(refused[0] / 2, rel=0.05)
    assert refused[2] == pytest.approx(refused[0] / 6, rel=0.05)


def test_every_picture_of_the_page_has_a_program_that_draws_it() -> None:
    shown = set(re.findall(r"img/gallery-([a-z-]+)\.png", PAGE.read_text("utf-8")))
    assert shown == {*BY_NAME, "overview", "boundary-attack", "retry-storm"}
