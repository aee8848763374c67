"""`Lines`: who is first, and who comes next."""

from headgate.runtime.waiting_lines import Lines, Place


def test_the_first_to_join_is_first() -> None:
    lines = Lines()
    first, second = Place(), Place()
    assert lines.join("key", first)
    assert not lines.join("key", second)
    assert lines.join("other", Place())
    assert not first.signal.is_set
    assert not second.signal.is_set


def test_the_next_is_told_when_the_first_leaves() -> None:
    lines = Lines()
    first, second, third = (Place() for _ in range(3))
    for place in (first, second, third):
        lines.join("key", place)
    lines.leave("key", first)
    assert (second.signal.is_set, third.signal.is_set) == (True, False)
    lines.leave("key", second)
    assert third.signal.is_set


def test_who_leaves_from_the_middle_is_simply_gone() -> None:
    lines = Lines()
    first, second, third = (Place() for _ in range(3))
    for place in (first, second, third):
        lines.join("key", place)
    lines.leave("key", second)
    assert not third.signal.is_set
    lines.leave("key", first)
    assert third.signal.is_set


def test_only_the_first_is_woken() -> None:
    lines = Lines()
    first, second = Place(), Place()
    lines.join("key", first)
    lines.join("key", second)
    lines.wake("other")
    assert not first.signal.is_set
    lines.wake("key")
    assert (first.signal.is_set, second.signal.is_set) == (True, False)


def test_an_empty_line_is_forgotten() -> None:
    lines = Lines()
    place = Place()
    lines.join("key", place)
    lines.leave("key", place)
    lines.wake("key")
    assert not lines._by_key
    assert lines.join("key", place)
