"""When and where numbers were taken."""

from __future__ import annotations

import platform
from datetime import UTC, datetime


def when_and_where() -> dict[str, str]:
    """What every record begins with."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
    }
