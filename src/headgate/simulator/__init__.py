"""Traffic replayed against rules on virtual time: who would have been limited, and when.

outcome = replay(policy, open_trace("access.log", policies=[policy]))
outcome = replay(policy, workload("bursts", policy, Options(rate=100)))
"""

from headgate.simulator.replay import Progress, replay
from headgate.simulator.results import KeyResult, Outcome, RuleResult
from headgate.simulator.traces import FORMATS, Trace, TraceError, open_trace
from headgate.simulator.traffic import Arrival, Event, ModelUse, SimulatedRequest, Traffic
from headgate.simulator.workloads import RETRIES, WORKLOADS, Options, Workload, workload

__all__ = [
    "FORMATS",
    "RETRIES",
    "WORKLOADS",
    "Arrival",
    "Event",
    "KeyResult",
    "ModelUse",
    "Options",
    "Outcome",
    "Progress",
    "RuleResult",
    "SimulatedRequest",
    "Trace",
    "TraceError",
    "Traffic",
    "Workload",
    "open_trace",
    "replay",
    "workload",
]
