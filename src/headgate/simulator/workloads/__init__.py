"""Workloads that are made up: what rules do when traffic is steady, comes in bursts, or attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.simulator.workloads.generated import RETRIES, Options, Workload
from headgate.simulator.workloads.shapes import (
    BoundaryAttack,
    Bursts,
    ManyTenants,
    RetryStorm,
    Steady,
)

if TYPE_CHECKING:
    from headgate.policy.model import Policy

WORKLOADS: Final[dict[str, type[Workload]]] = {
    one.name: one for one in (Steady, Bursts, RetryStorm, BoundaryAttack, ManyTenants)
}


def workload(name: str, policy: Policy, options: Options | None = None) -> Workload:
    """The workload called *name*, of requests that the rules of *policy* are for.

    Another policy can be tried on the same requests. Raises `OptionError` for one that there is
    not, or if no rule is for what is asked.
    """
    kind = WORKLOADS.get(name)
    if kind is None:
        raise OptionError(f"no workload: {name!r}; expected one of {', '.join(WORKLOADS)}")
    return kind(policy, Options() if options is None else options)


__all__ = ["RETRIES", "WORKLOADS", "Options", "Workload", "workload"]
