"""`Lines`: who is first, and who comes next."""

import threading

from headgate.runtime.waiting_lines import Lines


def test_the_first_to_join_is_first() -> None:
    lines: Lines[threading.Event] = Lines()
    first, second = threading.Event(), threading.Event()
    assert lines.join("key", first)
    assert not lines.join("key", second)
    assert lines.join("other", threading.Event())
    assert not first.is_set()
    assert not second.is_set()


def test_the_next_is_told_when_the_first_leaves() -> None:
    lines: Lines[threading.Event] = Lines()
    first, second, third = (threading.Event() for _ in range(3))
    for place in (first, second, third):
        lines.join("key", place)
    lines.leave("key", first)
    assert (second.is_set(), third.is_set()) == (True, False)
    lines.leave("key", second)
    assert third.is_set()


def test_who_leaves_from_the_middle_is_simply_gone() -> None:
    lines: Lines[threading.Event] = Lines()
    first, second, third = (threading.Event() for _ in range(3))
    for place in (first, second, third):
        lines.join("key", place)
    lines.leave("key", second)
    assert not third.is_set()
    lines.leave("key", first)
    assert third.is_set()


def test_only_the_first_is_woken() -> None:
    lines: Lines[threading.Event] = Lines()
    first, second = threading.Event(), threading.Event()
    lines.join("key", first)
    lines.join("key", second)
    lines.wake("other")
    assert not first.is_set()
    lines.wake("key")
    assert (first.is_set(), second.is_set()) == (True, False)


def test_an_empty_line_is_forgotten() -> None:
    lines: Lines[threading.Event] = Lines()
    place = threading.Event()
    lines.join("key", place)
    lines.leave("key", place)
    lines.wake("key")
    assert not lines._by_key
    assert lines.join("key", place)
