"""The OpenAPI document, held against what the app does."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from headgate.service.http import HttpApp, HttpOptions
from headgate.service.http.check_request import (
    CALLER_FIELDS,
    CHECK_FIELDS,
    COMMIT_FIELDS,
    RESERVATION_FIELDS,
    BodyFields,
)
from tests.support.http_app import Answer, FakeStore, app_of, ask, check, core_of, post

DOCUMENT: dict[str, Any] = ask(app_of(), "GET", "/openapi.json").json
SCHEMAS = DOCUMENT["components"]["schemas"]


def conforms(answer: Answer, method: str, path: str) -> None:
    """*answer* is among the responses that the document has, with the body and the headers."""
    said = DOCUMENT["paths"][path][method]["responses"][str(answer.status)]
    if "content" in said:
        shape = said["content"][answer.headers["content-type"]]["schema"]
        Draft202012Validator({**shape, "components": DOCUMENT["components"]}).validate(answer.json)
    told = {name.lower() for name in said.get("headers", {})}
    ours = {name for name in answer.headers if "ratelimit" in name or name == "retry-after"}
    assert ours <= told or answer.headers["content-type"] == "application/problem+json"


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_other_parts_add_their_paths() -> None:
    operation = {"responses": {"200": {"description": "All."}}, "security": [{"token": []}]}
    extra = {"/admin/v1/rules": {"get": operation}}
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    app = HttpApp(core_of(), paths=extra, schemes=schemes)
    document = ask(app, "GET", "/openapi.json").json
    validate(document)
    assert document["components"]["securitySchemes"] == schemes
    assert "/admin/v1/rules" in document["paths"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("CheckRequest", CHECK_FIELDS),
        ("CallerRequest", CALLER_FIELDS),
        ("ReservationRequest", RESERVATION_FIELDS),
        ("CommitRequest", COMMIT_FIELDS),
    ],
)
def test_every_field_of_a_body_is_in_it_and_no_other(name: str, wanted: BodyFields) -> None:
    assert set(SCHEMAS[name]["properties"]) == set(wanted.fields)
    assert tuple(SCHEMAS[name].get("required", ())) == wanted.required


def test_every_path_and_method_in_it_is_there_and_no_other() -> None:
    app = app_of()
    for path, methods in DOCUMENT["paths"].items():
        asked = path.replace("{id}", "x").replace("{path}", "x")
        for method in ("get", "put", "post", "delete", "patch"):
            status = ask(app, method.upper(), asked).status
            assert (status == 405) == (method not in methods), (method, path)


def test_answers_are_as_it_says() -> None:
    store = FakeStore()
    app = app_of(
        "version: 1\nrules: [{id: a, key_by: ip, limit: 2/m, on_store_failure: fail_closed}]",
        store=store,
    )
    for _ in range(3):
        conforms(check(app), "post", "/v1/check")
    for headers in ([], [("accept", "application/problem+json")]):
        answer = ask(app, "GET", "/v1/authorize/x", [("x-forwarded-for", "203.0.113.7"), *headers])
        assert answer.status == 429
        if not headers:
            conforms(answer, "get", "/v1/authorize/{path}")
    conforms(ask(app, "GET", "/v1/authorize/x"), "get", "/v1/authorize/{path}")
    conforms(ask(app, "GET", "/v1/authorize"), "get", "/v1/authorize")
    conforms(ask(app, "GET", "/v1/authorize", peer="192.0.2.1"), "get", "/v1/authorize")
    conforms(post(app, "/v1/check", {"cost": -1, "x": 1}), "post", "/v1/check")
    conforms(ask(app, "POST", "/v1/check"), "post", "/v1/check")
    conforms(ask(app, "GET", "/v1/rate_limit"), "get", "/v1/rate_limit")
    conforms(post(app, "/v1/rate_limit", {}), "post", "/v1/rate_limit")
    made = post(app, "/v1/reservations", {"path": "/", "cost": 1})
    conforms(made, "post", "/v1/reservations")
    conforms(post(app, "/v1/reservations", {"path": "/", "cost": 2}), "post", "/v1/reservations")
    settle = f"/v1/reservations/{made.json['id']}/commit"
    for _ in range(2):
        conforms(ask(app, "POST", settle), "post", "/v1/reservations/{id}/commit")
    cancelled = ask(app, "DELETE", "/v1/reservations/x")
    conforms(cancelled, "delete", "/v1/reservations/{id}")
    for path in ("/healthz", "/readyz", "/openapi.json"):
        conforms(ask(app, "GET", path), "get", path)
    store.is_gone = True
    outage = check(app)
    assert outage.status == 503
    conforms(outage, "post", "/v1/check")


def test_answers_of_a_store_that_does_not_answer_are_as_it_says() -> None:
    store = FakeStore()
    app = HttpApp(core_of(store=store), options=HttpOptions(deadline=0.01))
    store.is_stuck = True
    for answer, method, path in (
        (check(app), "post", "/v1/check"),
        (ask(app, "GET", "/v1/authorize/api/x"), "get", "/v1/authorize/{path}"),
        (post(app, "/v1/reservations", {"path": "/api/x", "cost": 1}), "post", "/v1/reservations"),
        (ask(app, "GET", "/v1/rate_limit"), "get", "/v1/rate_limit"),
    ):
        assert answer.status == 503
        conforms(answer, method, path)


def test_a_refusal_as_403_is_in_it() -> None:
    app = app_of()
    says = [("x-original-uri", "/api/x"), ("x-original-method", "GET"), ("x-real-ip", "192.0.2.7")]
    answers = [ask(app, "GET", "/v1/authorize", says, query=b"deny=403") for _ in range(4)]
    assert answers[-1].status == 403
    conforms(answers[-1], "get", "/v1/authorize")
