"""What Envoy itself answers."""

from __future__ import annotations

import json
from typing import Any

from headgate.gateway.envoy.listener import local_replies


def _with_json() -> list[Any]:
    """All but the one that leaves the body as it is, and the one for gRPC calls."""
    mappers = local_replies()["mappers"]
    return [one for one in mappers if "content_type" in one.get("body_format_override", ())]


def _bodies() -> list[Any]:
    made = []
    for mapper in _with_json():
        text = mapper["body_format_override"]["text_format_source"]["inline_string"]
        text = text.replace("%RESP(retry-after)%", "23").replace("%RESP(x-headgate-limit)%", "a")
        made.append(json.loads(text.replace("%%", "%")))
    return made


def test_every_answer_is_json_that_names_an_error_and_tells_people() -> None:
    for body in _bodies():
        assert body["error"].replace("_", "").isalpha()
        assert body["message"].endswith(".")


def test_an_outage_is_told_in_the_words_of_refusals_and_before_all_other_troubles() -> None:
    mappers = _with_json()
    place = next(n for n, one in enumerate(mappers) if "RLSE" in json.dumps(one["filter"]))
    assert _bodies()[place]["error"] == "temporarily_unavailable"
    assert "UF" not in json.dumps(mappers[:place])


def test_a_local_limit_tells_what_it_knows() -> None:
    told, untold = _bodies()[1:3]
    assert told == {
        "error": "rate_limit_exceeded",
        "message": "Too many requests. Try again in 23 s.",
        "limit": "a",
        "retry_after_ms": 23000,
        "retry_after": 23,
    }
    assert set(untold) == {"error", "message"}


def test_what_the_service_refused_for_its_path_is_414() -> None:
    second = local_replies()["mappers"][1]
    assert second["status_code"] == 414
    assert _bodies()[0]["error"] == "path_too_long"


def test_what_the_service_refused_for_want_of_its_store_is_503_with_its_own_body() -> None:
    first = local_replies()["mappers"][0]
    assert first["status_code"] == 503
    assert "body_format_override" not in first
    assert first["filter"]["metadata_filter"]["match_if_key_not_found"] is False
