"""The queue: what is told of a turn, and what is left of one that was given up."""

from typing import Any

from headgate.algorithms import Algorithm, GCRAAlgorithm, LeakyQueueAlgorithm, carry
from headgate.algorithms.leaky_queue import MOST_VACANCIES, Line, QueuedChecks, Vacancy
from headgate.limits import LeakyQueue, TokenBucket
from headgate.units import MILLISECOND, SECOND

NOW = 1_700_000_000 * SECOND
TENTH = 100 * MILLISECOND


def queue_of(length: int, rate: int = 10) -> LeakyQueueAlgorithm:
    return LeakyQueueAlgorithm(LeakyQueue(rate, length))


def taken(algorithm: LeakyQueueAlgorithm, times: int, now: int = NOW) -> tuple[Line, list[int]]:
    """A queue with *times* single units in it, and their turns."""
    line, turns = None, []
    for _ in range(times):
        line, outcome = algorithm.take(line, 1, now)
        assert outcome.allowed
        turns.append(now + outcome.delay_ns)
    assert line is not None
    return line, turns


def test_a_third_of_a_second_is_never_rounded() -> None:
    algorithm = queue_of(2_000, rate=3)
    _, turns = taken(algorithm, 1_501)
    assert turns[1] == NOW + 333_333_334
    assert turns[1_500] == NOW + 500 * SECOND


def test_a_queue_of_two_takes_the_third_at_any_rate() -> None:
    for rate in (3, 7, 11, 13):
        limit = LeakyQueue(rate, 2)
        assert limit.quota == 3
        taken(LeakyQueueAlgorithm(limit), 3)


def test_a_patience_shorter_than_the_queue_counts() -> None:
    limit = LeakyQueue(10, 100, max_wait=0.25)
    assert (limit.quota, limit.patience_ns) == (3, 250 * MILLISECOND)
    assert limit.period_ns == 350 * MILLISECOND
    assert limit.patient == LeakyQueue(10, 100)
    line, _ = taken(LeakyQueueAlgorithm(limit), 3)
    assert LeakyQueueAlgorithm(limit).wait(line, 1, NOW) == 50 * MILLISECOND


def test_vacancies_are_bounded_and_the_earliest_is_lost() -> None:
    algorithm = queue_of(1_000)
    line, turns = taken(algorithm, 2 * MOST_VACANCIES + 4)
    for turn in turns[1::2]:
        left = algorithm.vacate(line, turn, 1, NOW)
        assert left is not None
        line = left
    assert len(line.vacancies) == MOST_VACANCIES
    assert algorithm.delay(line, 1, NOW) == turns[3] - NOW, "the first of them was lost"


def test_who_gives_up_a_turn_that_nobody_has_changes_nothing() -> None:
    algorithm = queue_of(10)
    line, turns = taken(algorithm, 4)
    assert algorithm.vacate(None, turns[1], 1, NOW) is None
    assert algorithm.vacate(line, turns[1] + 1, 1, NOW) is None
    assert algorithm.vacate(line, turns[3], 2, NOW) is None
    assert algorithm.vacate(line, turns[3] + SECOND, 1, NOW) is None
    assert algorithm.vacate(line, NOW, 1, NOW) is None


def test_a_vacancy_that_has_passed_is_nobodys() -> None:
    algorithm = queue_of(10)
    line, turns = taken(algorithm, 4)
    vacated = algorithm.vacate(line, turns[1], 1, NOW)
    assert vacated is not None
    assert algorithm.delay(vacated, 1, turns[1]) == 0, "at its beginning it is still whole"
    assert algorithm.delay(vacated, 1, turns[1] + 1) == 3 * TENTH - 1
    assert algorithm.used(vacated, NOW) == 3


def test_under_another_pace_what_was_promised_stays_promised() -> None:
    slow, fast = queue_of(100, rate=3), queue_of(100, rate=7_000)
    line, _ = taken(slow, 4)
    moved = carry(slow, line, fast, NOW)
    assert fast.delay(moved, 1, NOW) == slow.delay(line, 1, NOW)
    assert moved is not None
    back = carry(fast, moved, slow, NOW)
    assert slow.delay(back, 1, NOW) - slow.delay(line, 1, NOW) in (0, 1)
    rested = carry(slow, line, fast, NOW + 2 * SECOND)
    assert fast.delay(rested, 1, NOW + 2 * SECOND) == 0


def test_what_a_bucket_used_is_queued_and_what_is_queued_is_used() -> None:
    queue: Algorithm[Any] = queue_of(10)
    bucket: Algorithm[Any] = GCRAAlgorithm(TokenBucket(10, 10))
    line = carry(bucket, bucket.charge(None, 3, NOW), queue, NOW)
    assert line == queue.charge(None, 3, NOW)
    assert bucket.used(carry(queue, line, bucket, NOW), NOW) == 3


def test_a_refund_gives_nobodys_turn_away() -> None:
    algorithm = queue_of(10)
    line, turns = taken(algorithm, 2)
    for amount, now in ((1, NOW), (2, NOW), (2, NOW + 1), (1, turns[1])):
        assert algorithm.refund(line, amount, now) == line


def test_a_queue_that_has_drained_is_as_new() -> None:
    algorithm = queue_of(10)
    drained = algorithm.charge(None, 1, NOW - TENTH)
    assert algorithm.fresh_in(drained, NOW) == 0
    assert algorithm.delay(drained, 1, NOW) == 0
    assert algorithm.delay(drained, 1, NOW - 1) == 1


def test_checks_that_can_never_be_behind_one_another_are_refused_for_good() -> None:
    turns = QueuedChecks(queue_of(1), None, NOW)
    assert turns.wait(2) == 0
    assert turns.wait(1) is None
    turns = QueuedChecks(queue_of(2), queue_of(2).charge(None, 1, NOW), NOW)
    assert turns.wait(2) == 0
    assert turns.wait(1) == TENTH


def test_a_queue_whose_clock_steps_back_keeps_its_length_and_gives_up_its_vacancies() -> None:
    algorithm = queue_of(9)
    line, _ = taken(algorithm, 4)
    begun = Line(line.ends, (Vacancy(line.ends - 1, 1),), NOW)
    back = algorithm.rebase(begun, NOW - SECOND)
    assert algorithm.delay(back, 1, NOW - SECOND) == algorithm.delay(line, 1, NOW) == 4 * TENTH
    assert (back.vacancies, back.since) == ((), NOW - SECOND)
    assert algorithm.rebase(begun, NOW) is begun
