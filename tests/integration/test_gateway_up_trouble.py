"""`headgate up` when its processes die or hang, and when it dies itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.gateway_process import gateway
from tests.support.servers import wait_until


def test_envoy_and_a_worker_are_started_again_with_one_line_each(tmp_path: Path) -> None:
    with gateway(tmp_path) as one:
        for name, pid in one.children.items():
            os.kill(pid, signal.SIGKILL)
            wait_until(
                lambda: "is ready again" in one.log.splitlines()[-1], f"{name} is there again"
            )
        wait_until(one.is_serving, "the gateway serves")
        assert one.log.count("Envoy ended (killed by SIGKILL); restarting in") == 1
        assert one.log.count("worker 0 ended (killed by SIGKILL); restarting") == 1
        wait_until(lambda: one.statuses(6)[-1] == 429, "requests are limited")
        os.kill(one.envoy_pid, signal.SIGKILL)
        wait_until(lambda: one.log.count("Envoy ended") == 2, "it is about to be started")
        one.stop()
        assert one.wait() == 0
        assert "cut off" not in one.log


def test_a_worker_that_hangs_is_started_again_and_nothing_is_left_of_a_gateway_that_is_killed(
    tmp_path: Path,
) -> None:
    with gateway(tmp_path) as one:
        os.kill(one.worker_pid, signal.SIGSTOP)
        wait_until(lambda: "worker 0 is ready again" in one.log, "it is found", within=30.0)
        assert "worker 0 did not respond for 5 s and was killed" in one.log
        wait_until(lambda: one.statuses(6)[-1] == 429, "requests are limited")
        children = one.children
        os.kill(one.process.pid, signal.SIGKILL)
        one.wait()
        wait_until(lambda: not any(map(_runs, children.values())), "its children are gone too")


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
