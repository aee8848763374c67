"""Where queues are kept: one counter, however long each of those who ask would wait."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.algorithms import LeakyQueueAlgorithm

if TYPE_CHECKING:
    from headgate.limits import LeakyQueue


def queue_under(limit: LeakyQueue, origin: int) -> tuple[LeakyQueueAlgorithm, LeakyQueue]:
    """The arithmetic to ask a queue by, and the limit that it is kept under."""
    patient = limit.patient
    return _kept(patient, origin).asked_under(limit), patient


@lru_cache(maxsize=1024)
def _kept(patient: LeakyQueue, origin: int) -> LeakyQueueAlgorithm:
    return LeakyQueueAlgorithm(patient, origin)
