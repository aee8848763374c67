"""The plots as files."""

import subprocess
import sys
from pathlib import Path

from headgate.simulator.report.plots import write_pngs
from tests.support.replay_outcomes import HOSTILE, outcome, rule

PNG = b"\x89PNG\r\n\x1a\n"
QUIET = rule("quiet", denied=(0, 0, 0), top=())


def test_each_rule_that_denied_has_a_picture(tmp_path: Path) -> None:
    written = write_pngs([outcome(rule(), QUIET)], tmp_path / "new")
    assert [path.name for path in written] == ["requests.png", "rule-1-per-tenant.png"]
    assert all(path.read_bytes().startswith(PNG) for path in written)


def test_two_policies_have_pictures_of_their_own(tmp_path: Path) -> None:
    written = write_pngs([outcome(rule()), outcome(QUIET, rule())], tmp_path)
    assert [path.name for path in written] == [
        "requests-before.png",
        "requests-after.png",
        "rule-1-per-tenant-before.png",
        "rule-1-per-tenant-after.png",
    ]


def test_hostile_ids_do_not_choose_where_files_are_written(tmp_path: Path) -> None:
    bad = [rule("../../etc/passwd"), rule("\N{HIRAGANA LETTER A}" * 300), rule(HOSTILE)]
    written = write_pngs([outcome(*bad, name=HOSTILE)], tmp_path)
    assert {path.parent for path in written} == {tmp_path}
    assert [path.name for path in written[1:]] == [
        "rule-1-etc-passwd.png",
        "rule-2-rule.png",
        "rule-3-script-img-src-x-onerror-alert-1.png",
    ]


def test_the_same_outcome_gives_the_same_bytes(tmp_path: Path) -> None:
    once, again = (write_pngs([outcome(rule())], tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = (
        "import sys, headgate.simulator.report as report; "
        "sys.exit('matplotlib' in sys.modules or not report.text_report)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603 (our own code)
    assert done.returncode == 0
