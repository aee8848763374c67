"""The settings of the service, from wherever they are said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.service.settings.consistency import contradictions
from headgate.service.settings.model import SETTINGS, Settings
from headgate.settings import gather_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.rules.problems import Problem
    from headgate.settings import Setting


@dataclass(frozen=True, slots=True)
class Gathered:
    """The settings, and what their author may regret."""

    settings: Settings
    warnings: tuple[Problem, ...]


def gather(
    *,
    flags: Mapping[str, str | Sequence[str] | None],
    variables: Mapping[str, str],
    config: str | None = None,
    others: Sequence[Setting] = (),
) -> Gathered:
    """The settings that *flags*, *variables* and the file *config* make: see `gather_values`."""
    found = gather_values(
        SETTINGS,
        flags=flags,
        variables=variables,
        config=config,
        contradictions=contradictions,
        others=others,
    )
    return Gathered(Settings(**found.values), found.warnings)
