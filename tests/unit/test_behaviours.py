"""The list of behaviours follows the tests and keeps what people wrote in it."""

import pytest

from scripts.behaviours import (
    Behaviour,
    Entry,
    Listing,
    find_tests,
    merge,
    problems,
    read_list,
    write_list,
)

FREE = Behaviour("stores", "a denied request is free")
SLOW = Behaviour("stores", "a slow server is given up")


def test_what_is_written_is_read_back() -> None:
    listing: Listing = {
        FREE: Entry("denials", held="test_denials, Breaker: opens once"),
        SLOW: Entry("faults", copies=3, dropped="there is no such server (x2) -> any more"),
        Behaviour("cli", "HalfOpen: probes once"): Entry("top", copies=2),
    }
    assert read_list(write_list(listing)) == listing


def test_a_deleted_test_keeps_its_line_and_needs_a_note() -> None:
    listed = merge({FREE: Entry("denials")}, {FREE: Entry("denials"), SLOW: Entry("faults")})
    assert set(listed) == {FREE, SLOW}
    (problem,) = problems({FREE: Entry("denials")}, listed)
    assert "no test for 'a slow server is given up' any more" in problem


@pytest.mark.parametrize(
    "note", [Entry("x", held="test_a_denied_request_is_free"), Entry("x", dropped="why")]
)
def test_a_note_answers_for_a_deleted_test_and_stays(note: Entry) -> None:
    found: Listing = {FREE: Entry("denials")}
    listed = merge(found, {FREE: Entry("denials"), SLOW: note})
    assert listed[SLOW] == note
    assert not [*problems(found, listed)]


def test_a_note_must_name_a_test_that_exists() -> None:
    (problem,) = problems({}, {SLOW: Entry("x", held="test_of_yore")})
    assert "names 'test_of_yore', which is no test" in problem


def test_a_test_that_is_not_listed_is_a_problem() -> None:
    (problem,) = problems({FREE: Entry("denials")}, {})
    assert "is not listed" in problem


def test_one_of_several_tests_with_a_name_is_missed() -> None:
    found: Listing = {FREE: Entry("denials", copies=2)}
    listed = merge(found, {FREE: Entry("denials", copies=3)})
    assert len([*problems(found, listed)]) == 1


def test_a_note_goes_when_the_test_is_back() -> None:
    found: Listing = {FREE: Entry("denials")}
    assert merge(found, {FREE: Entry("denials", dropped="why")}) == found


def test_a_test_that_changes_area_takes_its_line_along() -> None:
    found: Listing = {Behaviour("layers", FREE.label): Entry("denials")}
    assert merge(found, {FREE: Entry("denials")}) == found


def test_inherited_cases_are_listed_with_the_contract_they_come_from() -> None:
    assert Behaviour("store contract", "MemoryStore: keeps LayerStoreContract") in find_tests()
