"""The pages about the service and how it is set up say what the program does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.cli import main
from headgate.cli.size import COUNTER_BYTES, LONG_KEY_BYTES, STORE_US
from headgate.config import gather_values
from headgate.config.gateway import SETTINGS as GATEWAY
from headgate.config.service import SETTINGS as SERVICE
from headgate.config.service import gather
from tests.golden.recorder import check_tables
from tests.golden.reference_pages import setting_rows

if TYPE_CHECKING:
    from headgate.config.declaration import Setting

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SETTINGS = (*SERVICE, *GATEWAY)
PAGES = ("../README.md", "service.md", "configuration.md", "cli.md", "deploy.md")


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("heading", "settings"), [("All settings", SERVICE), ("Settings of the gateway", GATEWAY)]
)
def test_the_tables_of_settings_are_those_of_the_code(
    heading: str, settings: tuple[Setting, ...]
) -> None:
    check_tables(DOCS / "configuration.md", heading, setting_rows(settings))


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    [example] = re.findall(r"```yaml\n(rules:.*?)```", page("configuration.md"), re.DOTALL)
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length")
    config = tmp_path / "headgate.yaml"
    config.write_text(re.sub(r"_file: [^}\n]+", f"_file: {secret}", example))
    assert gather(flags={}, variables={}, config=str(config)).settings.workers == 4


def test_the_example_for_the_gateway_is_one_for_both(tmp_path: Path) -> None:
    [example] = re.findall(r"```yaml\n(listen:.*?)```", page("configuration.md"), re.DOTALL)
    config = tmp_path / "headgate.yaml"
    config.write_text(example.replace("secret_file: /etc/headgate/secret\n", ""))
    flags = dict.fromkeys(one.name for one in SETTINGS)
    values = gather_values(SETTINGS, flags=flags, variables={}, config=str(config)).values
    assert [str(one) for one in values["upstream"]] == ["http://10.0.0.5:8000"]
    of_service = gather(flags={}, variables={}, config=str(config), others=GATEWAY)
    assert of_service.settings.rules == values["rules"]
    assert not of_service.warnings


@pytest.mark.parametrize("name", PAGES)
def test_every_variable_and_flag_that_a_page_names_exists(name: str) -> None:
    text = page(name)
    variables = {one.variable for one in SETTINGS} | {
        "HEADGATE_CONFIG",
        "HEADGATE_ETCD_PASSWORD",
        "HEADGATE_URL",  # of `headgate top`
    }
    assert set(re.findall(r"HEADGATE_[A-Z0-9_]*[A-Z0-9]", text)) <= variables
    always = {"--config", "--check", "--json", "--help"}
    of_service, of_both = ({one.flag for one in own} | always for own in (SERVICE, SETTINGS))
    for command, flags in (("serve", of_service), ("up", of_both)):
        for line in re.findall(rf"headgate {command}\b(?:\\\n|[^\n`])*", text):
            assert set(re.findall(r"--[a-z][a-z0-9-]*", line)) <= flags


def test_mistakes_are_told_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [shown] = re.findall(
        r"\$ HEADGATE_DRAIN=30x [^\n]*\n(.*?)```", page("configuration.md"), re.DOTALL
    )
    (tmp_path / "headgate.yaml").write_text("worker: 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_DRAIN", "30x")
    assert main(["serve", "--config", "headgate.yaml"]) == 2
    assert capsys.readouterr().err == shown


class TestScaling:
    RUNS = re.findall(r"\$ (headgate size [^\n]*)\n(.*?)```", page("deploy.md"), re.DOTALL)

    @pytest.mark.parametrize(("command", "shown"), RUNS)
    def test_the_page_shows_what_the_command_prints(
        self, command: str, shown: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(shlex.split(command)[1:]) == 0
        assert capsys.readouterr().out == shown

    def test_there_is_one_with_a_million_checks_a_second(self) -> None:
        assert any(
            "--clients 10M" in command and "--checks 1M" in command for command, _ in self.RUNS
        )

    def test_the_page_has_the_figures_of_the_command(self) -> None:
        text = page("deploy.md")
        for figure in (
            f"{COUNTER_BYTES} bytes",
            f"{LONG_KEY_BYTES} with",
            f"plan with {STORE_US} us",
        ):
            assert figure in text
