"""Celery tasks with limits over all workers: one waits, one is retried later, one is rejected.

export REDIS_URL=redis://localhost:6379/0
celery -A celery_tasks --workdir examples worker
python examples/celery_tasks.py            # sends tasks, and prints their results
"""

from __future__ import annotations

import os

from celery import Celery

from headgate.integrations.celery import TaskLimits

REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379/0")

app = Celery("celery_tasks", broker=REDIS, backend=REDIS)
limits = TaskLimits(os.environ.get("LIMITS_URL", REDIS))  # counters may be kept elsewhere


@app.task(name="mail")
@limits.limit("2/s", key="user", when_limited="retry")
def mail(user: str, text: str) -> str:
    """Two a second for each user; those above come back to the queue."""
    return f"{text} to {user}"


@app.task(name="geocode")
@limits.limit("5/s", when_limited="wait")
def geocode(place: str) -> str:
    """Five a second for all users together; a worker waits until it may call the service."""
    return place.upper()


@app.task(name="report")
@limits.limit("1/minute strict", key="user", when_limited="reject")
def report(user: str) -> str:
    """One a minute for each user; others fail with `TaskLimitedError`."""
    return f"report for {user}"


def main() -> None:
    """Send tasks, and print their results."""
    mails = [mail.delay("ann", f"letter {number}") for number in range(4)]
    places = [geocode.delay(f"town {number}") for number in range(8)]
    reports = [report.delay("ann") for _ in range(2)]
    for result in (*mails, *places):
        print(result.get(timeout=50))
    for result in reports:
        print(repr(result.get(timeout=50, propagate=False)))


if __name__ == "__main__":
    main()
