"""etcd needs no package that the rules themselves do not need."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["grpc"] = sys.modules["google"] = None
import headgate.control.etcd
print(headgate.control.etcd.EtcdSource.open("etcd://host").place)
"""


def test_etcd_needs_neither_grpcio_nor_protobuf() -> None:
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "etcd://host:2379/headgate/"
