"""How long a program waits before it is started again."""

from headgate.runtime.supervisor import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.1, longest=1.0, jitter=lambda: 1.0)
    assert [round(backoff.after(0.5), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_who_has_run_for_a_while_begins_anew() -> None:
    backoff = Backoff(first=0.1, longest=1.0, steady=10.0, jitter=lambda: 1.0)
    assert [backoff.after(9.9), backoff.after(9.9), backoff.after(10.0)] == [0.1, 0.2, 0.1]


def test_no_two_wait_equally_long() -> None:
    turns = iter((0.0, 0.5, 1.0))
    backoff = Backoff(first=4.0, longest=4.0, jitter=lambda: next(turns))
    assert [backoff.after(0.0) for _ in range(3)] == [2.0, 3.0, 4.0]
