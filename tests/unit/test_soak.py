"""What the soak counts as wrong: `benchmarks.soak` judges runs that are made up here."""

from __future__ import annotations

import json

from benchmarks.soak import LIMIT, SHARE, WINDOW_S, Fault, Run, bounds, judge, outages_in

AT = 1_700_000_000.0
WINDOW = int(AT // WINDOW_S)


def line(at: str, pid: int, message: str) -> str:
    return json.dumps({"time": f"2023-11-14T22:13:{at}Z", "pid": pid, "message": message})


LOG = "\n".join(
    (
        "headgate serves",
        line("21.000", 1, "the store is gone (timeout): each limit follows its failure policy"),
        line("21.500", 2, "the store is gone (timeout): each limit follows its failure policy"),
        line("23.000", 1, "the store is back after 2.0 s; requests decided without it: none"),
    )
)


def run_of(**allowed: int) -> Run:
    run = Run(memory={pid: [(AT + n, 50 << 20) for n in range(9)] for pid in (1, 2, 3)})
    for kind, count in allowed.items():
        run.allowed[kind, "ada", WINDOW] = count
    run.outcomes["HTTP 200"] = sum(allowed.values())
    run.latencies.append((AT, 0.01))
    return run


def missed(run: Run, log: str = "", status: int = 0) -> list[str]:
    return [goal.what for goal in judge(run, log, status)[1] if not goal.met]


def test_an_outage_ends_when_the_process_says_so_or_is_killed() -> None:
    assert list(outages_in(LOG, {}, AT + 60)) == [(AT + 1, AT + 3), (AT + 1.5, AT + 60)]
    assert list(outages_in(LOG, {2: AT + 9}, AT + 60))[1] == (AT + 1.5, AT + 9)


def test_a_caller_gets_its_limit_again_for_each_loss_and_a_share_for_each_outage() -> None:
    run = run_of(closed=1)
    outages = [(AT + 1, AT + 3), (AT - 9, AT + 1), (AT + WINDOW_S, AT + 60)]
    assert bounds(run, outages) == {("closed", WINDOW): LIMIT, ("open", WINDOW): LIMIT + 2 * SHARE}
    run.forgotten.append((AT + 1, AT + 2))
    assert bounds(run, [])["closed", WINDOW] == 2 * LIMIT


def test_a_decision_over_the_bound_is_counted() -> None:
    assert missed(run_of(closed=LIMIT, open=LIMIT)) == []
    assert missed(run_of(closed=LIMIT + 1)) == ["decisions over the stated bound"]
    assert missed(run_of(open=LIMIT + 2 * SHARE), LOG) == []
    assert missed(run_of(open=LIMIT + 2 * SHARE + 1), LOG) == ["decisions over the stated bound"]


def test_a_request_without_an_answer_needs_a_fault_of_a_worker() -> None:
    run = run_of(closed=1)
    run.failures.append((AT, "HTTP TimeoutError"))
    assert missed(run) == ["unanswered requests that no fault of a worker explains"]
    run.broken.append(Fault("worker killed (SIGKILL)", AT - 1, AT + 1))
    assert missed(run) == []


def test_errors_of_the_service_and_memory_that_grows_are_told() -> None:
    run = run_of(closed=1)
    run.outcomes["HTTP 500"] = 1
    run.memory[1] = [(AT + n, (50 + n) << 20) for n in range(99)]
    assert missed(run, "Traceback", 1) == [
        "responses 500, tracebacks",
        "exit status of the service",
        "growth of a worker, MB a minute",
    ]
