"""The lines of Envoy, passed on in our log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from headgate.gateway.processes.logs import EnvoyLog
from headgate.observability.denials import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logger = logging.getLogger("headgate")
    before = logger.propagate, logger.level
    logger.propagate = True
    caplog.set_level(logging.DEBUG, "headgate")
    yield
    logger.propagate, _ = before


class TestEnvoy:
    def test_levels_are_ours_and_the_part_is_a_field(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = EnvoyLog()
        log.read_line("headgate|error|config|listener 'gateway': a|b is wrong")
        [record] = caplog.records
        assert (record.levelno, record.getMessage()) == (
            logging.ERROR,
            "Envoy: listener 'gateway': a|b is wrong",
        )
        assert getattr(record, FIELDS) == {"part": "config"}

    def test_its_beginning_is_not_told_unless_it_is_grave(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = EnvoyLog()
        log.read_line("headgate|info|main|statically linked extensions:")
        log.read_line("  envoy.filters.http: everything")
        log.read_line("headgate|warning|main|something odd")
        log.is_ready = True
        log.read_line("headgate|info|upstream|now it counts")
        assert [one.getMessage() for one in caplog.records] == [
            "Envoy: something odd",
            "Envoy: now it counts",
        ]

    def test_noise_is_never_told(self, caplog: pytest.LogCaptureFixture) -> None:
        log = EnvoyLog()
        log.read_line("headgate|warning|main|caught ENVOY_SIGTERM")
        log.read_line("")
        assert not caplog.records

    def test_the_part_that_names_callers_is_not_heard(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = EnvoyLog()
        log.is_ready = True
        log.read_line("headgate|error|rate_limit_quota|an unexpected bucket. ID: bucket {")
        log.read_line('  value: "a-secret-key"')
        log.read_line("headgate|error|config|another matter")
        assert [one.getMessage() for one in caplog.records] == ["Envoy: another matter"]
        assert "secret" not in log.last_error

    def test_the_last_words_are_the_gravest_with_all_their_lines(self) -> None:
        log = EnvoyLog()
        log.read_line("headgate|warning|main|a warning")
        log.read_line("headgate|critical|main|error initializing config")
        log.read_line("  'bootstrap.json'")
        log.read_line("headgate|warning|main|another warning")
        assert log.last_error == "error initializing config 'bootstrap.json'"
        log.begin()
        assert log.last_error == ""

    def test_of_a_crash_the_first_words_say_why_and_where_it_was_is_not_told(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = EnvoyLog()
        log.read_line("headgate|critical|assert|assert failure: inotify_fd_ >= 0.")
        log.read_line("headgate|error|envoy_bug|#3 UNKNOWN [0x55c9e68f79f5]")
        log.read_line("headgate|critical|backtrace|#0: [0x7f365b5cf050]")
        log.read_line("headgate|critical|backtrace|Caught Aborted, suspect faulting address 0x5aa1")
        assert log.last_error == "assert failure: inotify_fd_ >= 0."
        assert len(caplog.records) == 2
