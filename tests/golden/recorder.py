"""Compare a value with its recording, or record it when HEADGATE_RECORD_GOLDENS is set."""

import json
import os
from pathlib import Path

_HERE = Path(__file__).parent
_RECORDING = "HEADGATE_RECORD_GOLDENS" in os.environ


def check_wire(name: str, value: object) -> None:
    """Compare *value* (JSON types only) with `wire/<name>.json`."""
    _check(_HERE / "wire" / f"{name}.json", _as_json(value))


def check_text(name: str, text: str) -> None:
    """Compare *text* with `text/<name>.txt`."""
    _check(_HERE / "text" / f"{name}.txt", text if text.endswith("\n") else text + "\n")


def _as_json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _check(path: Path, found: str) -> None:
    if _RECORDING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return
    assert path.exists(), f"{path.name} is not recorded: run `make goldens` and review the new file"
    recorded = path.read_text(encoding="utf-8")
    assert found.splitlines() == recorded.splitlines(), (
        f"{path.relative_to(_HERE)} differs; if this is intended, run `make goldens`"
    )
