"""etcd is an extra: it costs nobody anything who does not use it, and says what is missing."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = None
from headgate.errors import OptionError
try:
    import headgate.control.etcd
except OptionError as error:
    print(error)
"""
ALONE = "import sys, headgate, headgate.control; print('grpc' in sys.modules)"


def printed(program: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_without_grpcio_the_extra_is_named() -> None:
    assert "pip install 'headgate[service]'" in printed(WITHOUT_GRPC)


def test_grpc_is_imported_by_those_who_use_etcd_only() -> None:
    assert printed(ALONE) == "False"
