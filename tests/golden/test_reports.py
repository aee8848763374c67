"""What a service tells of itself: live figures, metrics, the OpenAPI document, its pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.golden.http_calls import Step, Wait, get, post, record
from tests.golden.metrics import record_metrics
from tests.golden.recorder import check_text
from tests.golden.transcript import PROSE, Transcript
from tests.support.servers import wait_until
from tests.support.service_process import ServiceProcess, service_process

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = {"authorization": "Bearer token-of-the-golden-tests"}
ENV = {"HEADGATE_ADMIN_TOKEN": "token-of-the-golden-tests"}

RULES = """\
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 5/minute}
  - {id: exports, match: {endpoint: /exports}, key_by: user_id, limit: 2/hour, mode: shadow}
  - {id: smaller, match: {endpoint: /api/**}, key_by: ip, limit: 2/hour, mode: shadow,
     candidate_of: api}
  - {id: api, match: {endpoint: /api/**}, key_by: ip, limit: 3/hour}
  - {id: queue, match: {endpoint: /queue}, key_by: user_id, shape: {rate: 1/s, queue: 1}}
  - {id: slots, match: {endpoint: /slots}, key_by: user_id, concurrency: 1}
"""

LIVE = get("/admin/v1/live", TOKEN)


def _checks(path: str, ip: str, times: int = 1) -> Step:
    return post("/v1/check", {"path": path, "ip": ip, "headers": {"x-user-id": ip}}, times=times)


TRAFFIC: dict[str, Step] = {
    "everybody": _checks("/", "192.0.2.1", times=7),
    "shadow": _checks("/exports", "192.0.2.2", times=3),
    "candidate": _checks("/api/x", "192.0.2.3", times=4),
    "queue": _checks("/queue", "192.0.2.4", times=3),
    "slots": _checks("/slots", "192.0.2.5", times=2),
    "nobody": post("/v1/check", {"path": "/"}),
    "Envoy": post(
        "/json",
        {
            "domain": "edge",
            "descriptors": [{"entries": [{"key": "remote_address", "value": "192.0.2.6"}]}],
        },
    ),
    "error": post("/v1/check", {}),
    "look": LIVE,
    "a second passes": Wait(1),
    "look again": LIVE,
    "more": _checks("/", "192.0.2.1", times=3),
}
"""What there is to be told of. Who looks has all until then counted at that time."""

FIGURES: dict[str, Step] = {
    "live": LIVE,
    "two minutes pass": Wait(120),
    "live, two minutes later": LIVE,
    "pressure": get("/admin/v1/pressure", TOKEN),
}

_KEY = {"rule_id": r"[\w-]+", "key": "(ip|user_id)=~[0-9a-f]{12}", "per_second": r"\d+\.\d+"}
ROWS = {
    "busiest_keys": {**_KEY, "at_most": r"\d+\.\d+"},
    "refused_keys": {**_KEY, "at_most": r"\d+\.\d+"},
}
"""Lists of keys that were met in a sample of the requests."""

UNSTABLE = {
    "p50": r"[0-9.e-]+",
    "p90": r"[0-9.e-]+",
    "p99": r"[0-9.e-]+",
    "$.version": r"\d+\.\d+\.\d+.*",
    "$.info.version": r"\d+\.\d+\.\d+.*",
    "etag": r'"[0-9a-f]{32}"',
    "$.node": r".+:\d+",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("service")
    files = {"rules.yaml": RULES}
    flags = ("--rules", "rules.yaml", "--log-level", "debug", "--log-denials", "5")
    with service_process(directory, *flags, files=files, env=ENV) as running:
        port = str(running.port)
        wait_until(lambda: port in running.log, "the service says where it is", within=60.0)
        yield running


def test_figures(service: ServiceProcess) -> None:
    transcript = Transcript("reports/live", unstable=UNSTABLE, rows=ROWS)
    record(service, {"live at the beginning": LIVE}, transcript)
    record(service, TRAFFIC, Transcript("reports/traffic", rows=ROWS))
    record(service, FIGURES, transcript)
    response = service.http.get("/metrics")
    metrics = Transcript("reports/metrics")
    metrics.add("type", response.headers["content-type"])
    record_metrics("metrics", response.text, metrics)
    log = re.sub(r"(?<=127\.0\.0\.1:)\d+", "<port>", service.log)
    log = re.sub(r"(?<=headgate )\d+\.\d+\.\d+\S*", "<version>", log)
    transcript.check()
    metrics.check()
    check_text("reports/log", log)


def test_openapi(service: ServiceProcess) -> None:
    prose = PROSE | {"description", "summary"}
    transcript = Transcript("reports/openapi", prose=prose, unstable=UNSTABLE)
    transcript.add_response("openapi", service.http.get("/openapi.json"))
    transcript.check()


def test_dashboard(service: ServiceProcess) -> None:
    """Which files there are and how they are sent, not what is in them."""
    transcript = Transcript("reports/dashboard", unstable=UNSTABLE)
    page = service.http.get("/", headers={"accept": "text/html,application/xhtml+xml"})
    transcript.add_head("page", page)
    known = service.http.get(
        "/", headers={"accept": "text/html", "if-none-match": page.headers["etag"]}
    )
    transcript.add_head("page, known already", known)
    for path in sorted(set(re.findall(r'(?:src|href)="(/?dashboard/[^"]+)"', page.text))):
        transcript.add_head(path, service.http.get("/" + path.lstrip("/")))
    transcript.check()
