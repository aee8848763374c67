"""`pytest --complete`: a run that leaves out a test fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


class Complete:
    """Fails a run that leaves out a test: skipped, expected to fail, or deselected."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._left_out: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped or hasattr(report, "wasxfail"):
            self._left_out.add(report.nodeid)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._left_out.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker of pytest-xdist has left out."""
        self._left_out.update(getattr(node, "workeroutput", {}).get("left_out", ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = sorted(self._left_out)
        elif self._left_out and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left_out:
            terminalreporter.section("left out, though --complete is given", red=True)
            for nodeid in sorted(self._left_out):
                terminalreporter.line(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--complete",
        action="store_true",
        help="fail if a test is skipped, expected to fail or deselected",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--complete"):
        config.pluginmanager.register(Complete(config))
