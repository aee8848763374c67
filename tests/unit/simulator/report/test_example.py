"""The example trace: generated, of nobody, and what the docs say came of it."""

import re
import runpy
from ipaddress import ip_address, ip_network
from pathlib import Path

from headgate.policy.loader import read_policy
from headgate.simulator.replay import replay
from headgate.simulator.report import text_report
from headgate.simulator.results import Outcome
from headgate.simulator.traces import open_trace

EXAMPLES = Path(__file__).parents[4] / "examples" / "traces"
LOG = EXAMPLES / "access.log"
DOCUMENTATION = [ip_network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]


def _outcome(name: str) -> Outcome:
    policy = read_policy((EXAMPLES / name).read_text("utf-8"))
    return replay(policy, open_trace(str(LOG), policies=[policy]), name=name)


def test_the_log_is_what_its_generator_writes() -> None:
    made = runpy.run_path(str(EXAMPLES / "generate.py"))
    assert LOG.read_text("utf-8").splitlines() == made["lines"]()


def test_all_addresses_are_of_the_ranges_for_documentation() -> None:
    found = {ip_address(one) for one in re.findall(r"^\S+", LOG.read_text("utf-8"), re.MULTILINE)}
    assert len(found) > 20
    assert all(any(one in network for network in DOCUMENTATION) for one in found)


def test_the_docs_tell_what_the_proposed_rules_would_do() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "simulate.md").read_text("utf-8")
    today, proposed = _outcome("today.yaml"), _outcome("proposed.yaml")
    for told in (text_report([today]), text_report([today, proposed])):
        shown = told.strip().splitlines()
        assert all(line.strip() in page for line in shown)
