"""A view that shows callers how they stand: every limit of the project, and what is left of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from headgate.integrations.django.request import DjangoRequest
from headgate.integrations.django.settings import current_gate
from headgate.integrations.exemptions import mark_exempt
from headgate.integrations.status import status_body, status_body_async

if TYPE_CHECKING:
    from django.http import HttpRequest


@require_safe
def status(request: HttpRequest) -> HttpResponse:
    """The limits of the caller as JSON. It consumes none of them."""
    asked = DjangoRequest(request)
    if hasattr(request, "scope"):  # in a thread of the event loop's, whose store is the async one
        body = async_to_sync(status_body_async)(current_gate(), asked)
    else:
        body = status_body(current_gate(), asked)
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(body, content_type="application/json", headers=headers)


mark_exempt(status)
