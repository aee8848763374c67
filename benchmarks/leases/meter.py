"""What Redis says of its own work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

_SCRIPTS: Final = ("eval", "evalsha", "fcall")
"""A decision and an exchange are one script each, and one round trip."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Seconds of processor time and scripts, since the server began."""

    cpu_s: float
    round_trips: int

    @classmethod
    def read(cls, server: RedisServer) -> Meter:
        lines = server.cli("info", "cpu", "commandstats").splitlines()
        found = dict(line.split(":", 1) for line in lines if ":" in line)
        cpu_s = float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
        return cls(cpu_s, sum(_calls(found.get(f"cmdstat_{name}", "")) for name in _SCRIPTS))

    def since(self, before: Meter) -> Meter:
        return Meter(self.cpu_s - before.cpu_s, self.round_trips - before.round_trips)


def _calls(stats: str) -> int:
    """The field calls of a line such as `calls=7,usec=80,usec_per_call=11.43`."""
    return int(stats.partition("calls=")[2].partition(",")[0] or 0)
