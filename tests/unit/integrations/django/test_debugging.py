"""The debug header in a Django project, under WSGI and ASGI: of the project, and of its views."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.test import AsyncClient

from headgate.integrations.django import limit
from headgate.responses.debug import debug_token
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.django_project import fine, finely, get, project

OURS = b"a secret"


@pytest.mark.parametrize("is_async", [False, True])
def test_the_limits_of_the_project_and_of_a_view_are_told(*, is_async: bool) -> None:
    token, _ = debug_token(OURS, now_ns=100 * SECOND, ttl_s=60)
    view = limit("1/minute", name="view")(finely if is_async else fine)

    async def ask(header: str) -> Any:
        return await AsyncClient().get("/a", headers={"Headgate-Debug": header})

    with project(
        {"a": view}, limits="9/minute", clock=ManualClock(100), debug_secret=OURS
    ) as client:

        def asked(header: str) -> Any:
            return (
                asyncio.run(ask(header)) if is_async else get(client, "/a", headgate_debug=header)
            )

        first, refused, without = asked(token), asked(token), asked("1.00")
    shown = first.headers["Headgate-Decision"]
    assert shown.startswith('"default";allowed=?1;mode=enforce;key="~')
    assert ', "view";allowed=?1;' in shown
    assert first.headers["Cache-Control"] == "no-store"
    assert refused.status_code == 429
    assert '"view";allowed=?0;' in refused.headers["Headgate-Decision"]
    assert without.status_code == 429
    assert "Headgate-Decision" not in without.headers
