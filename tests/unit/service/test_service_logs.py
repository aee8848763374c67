"""What the service says of itself: names of certificates, URLs without passwords, log lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate import RateLimiter
from headgate.config.service import Settings
from headgate.observability import RECORDER
from headgate.service.http_server import subject_of
from headgate.service.logs import configure_logs, log, log_denials
from headgate.service.sources import shown_store
from tests.support.logs import restored_logs

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestSubjects:
    def test_are_written_as_rfc_4514_has_them(self) -> None:
        subject = (
            (("countryName", "GB"),),
            (("organizationName", "Shop, Inc."),),
            (("commonName", "ada"), ("userId", "7")),
        )
        assert subject_of({"subject": subject}) == r"CN=ada+UID=7,O=Shop\, Inc.,C=GB"

    @pytest.mark.parametrize("certificate", [None, {}, {"subject": ()}])
    def test_there_may_be_none(self, certificate: dict[str, Any] | None) -> None:
        assert subject_of(certificate) is None

    @pytest.mark.parametrize(
        ("name", "written"), [("a+b", r"a\+b"), (" a ", r"\ a\ "), ("#a", r"\#a"), ("a=b", r"a\=b")]
    )
    def test_nobody_can_pretend_to_be_two(self, name: str, written: str) -> None:
        assert subject_of({"subject": ((("commonName", name),),)}) == f"CN={written}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("redis://user:pass@host:6379/0?timeout=1", "redis://host:6379/0"),
        ("redis+sentinel://:p@ss@h1,h2/m/0?sentinel_password=x", "redis+sentinel://h1,h2/m/0"),
        ("etcd://u:p@h:2379/teams", "etcd://h:2379/teams"),
        ("/etc/rules@home.yaml", "/etc/rules@home.yaml"),
    ],
)
def test_urls_are_shown_without_passwords(url: str, shown: str) -> None:
    assert shown_store(url) == shown


class TestLogs:
    @pytest.fixture(autouse=True)
    def _restored(self) -> Iterator[None]:
        with restored_logs():
            yield

    def test_people_get_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs(Settings(rules="x"))
        log("hello", event="greeting")
        assert capsys.readouterr().err.endswith("Z info hello\n")

    def test_programs_get_json_with_the_figures(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs(Settings(rules="x", log_format="json"))
        log("hello\nworld", event="greeting")
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        line = json.loads(told)
        assert (line["message"], line["event"], line["level"]) == (
            "hello\nworld",
            "greeting",
            "info",
        )

    @pytest.mark.parametrize("shown", ["hashed", "clear"])
    def test_refusals_are_told_with_hashed_keys_whatever_the_dashboard_shows(
        self, capsys: pytest.CaptureFixture[str], shown: str
    ) -> None:
        settings = Settings(rules="x", log_format="json", log_denials=1, dashboard_keys=shown)
        configure_logs(settings)
        end = log_denials(settings)
        try:
            limiter = RateLimiter("1/day", name=f"told-{shown}")
            for _ in range(5):
                limiter.hit("user_id=ada")
        finally:
            end()
        told = capsys.readouterr().err
        line = json.loads(told)
        assert (line["rule"], line["outcome"], line["left_out"]) == (f"told-{shown}", "denied", 0)
        assert line["logger"] == "headgate.decisions"
        assert line["key"].startswith("user_id=~")
        assert "ada" not in told

    def test_people_read_refusals_as_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        settings = Settings(rules="x", log_denials=1)
        configure_logs(settings)
        end = log_denials(settings)
        try:
            RateLimiter("1/day", name="told-in-words").hit("k", 2)
        finally:
            end()
        assert "Z info denied by told-in-words: key ~" in capsys.readouterr().err

    def test_no_refusals_are_told_unless_wanted(self) -> None:
        before = RECORDER.listeners
        log_denials(Settings(rules="x"))()
        assert RECORDER.listeners == before

    def test_what_is_below_the_level_is_not_told(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs(Settings(rules="x", log_level="warning"))
        log("hello")
        assert capsys.readouterr().err == ""
