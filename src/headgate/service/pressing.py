"""What a fleet of apps says of the pressure it is under, heard by the service.

The service sees no requests end, so it has nothing to say of that itself. It decides under limits
that are lowered by as much as those of the apps that share its store and its rules.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.shaping import AsyncPressureControl

if TYPE_CHECKING:
    from headgate.engine import AsyncRuleEngine, Engine

_NONE: Final = Fraction(1)


class FleetPressure:
    """Keeps the limits of *engine* as low as the fleet's, while its policy has `pressure`."""

    def __init__(self, engine: AsyncRuleEngine, *, namespace: str) -> None:
        self._engine = engine
        self._namespace = namespace
        self._control: AsyncPressureControl | None = None

    @property
    def factor(self) -> Fraction:
        """What limits are multiplied by now."""
        return self._engine.in_force.scale.factor

    def start(self) -> None:
        """Listen from now on; to be called in the event loop."""
        self._engine.in_force.tell(self._adopt)

    async def aclose(self) -> None:
        """Listen no longer."""
        if self._control is not None:
            await self._control.aclose()

    def _adopt(self, engine: Engine) -> None:
        pressure, scale = engine.policy.pressure, self._engine.in_force.scale
        if pressure is None:
            scale.factor = _NONE
            return
        if self._control is None:
            self._control = AsyncPressureControl(
                pressure, store=self._engine.runner.store, namespace=self._namespace
            )
            self._control.on_change(self._changed)
            self._control.start()
        else:
            self._control.replace(pressure)
        scale.factor = self._control.factor

    def _changed(self, factor: Fraction) -> None:
        in_force = self._engine.in_force
        if in_force.policy.pressure is not None:
            in_force.scale.factor = factor
