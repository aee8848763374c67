"""The decorator leaves no trace in the documentation of an app, nor in how FastAPI reads it.

This module has annotations that are text, as many apps have.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, Header, Query, Request
from fastapi.responses import Response  # noqa: TC002 (the same)
from pydantic import BaseModel

from headgate.integrations.fastapi import RateLimit, exempt, limit
from tests.support.asgi_client import Client, still_limiter

Decorator = Callable[[Any], Any]


class Item(BaseModel):
    name: str
    price: float = 1.0


class Priced(BaseModel):
    name: str


async def settings(page: int = 1, token: Annotated[str | None, Header()] = None) -> dict[str, Any]:
    return {"page": page, "token": token}


def plain(function: Any) -> Any:
    return function


def described(decorated: Decorator) -> FastAPI:
    """An app with an endpoint of every kind, each of which *decorated* has been put on."""
    app = FastAPI()
    router = APIRouter(prefix="/items", tags=["items"])

    @router.post("/{number}", status_code=201, response_model=Priced)
    @decorated
    async def make(
        number: int,
        item: Item,
        shop: Annotated[dict[str, Any], Depends(settings)],
        q: Annotated[list[str] | None, Query(max_length=5)] = None,
    ) -> Item:
        """Make an item.

        With a longer description.
        """
        return item

    @router.get("/{number}", deprecated=True, responses={404: {"description": "none"}})
    @decorated
    def show(number: int, request: Request, tasks: BackgroundTasks) -> Item | None:
        """Show an item."""
        return Item(name=str(number))

    @app.get("/stream")
    @decorated
    async def stream() -> AsyncIterable[Item]:
        for name in "ab":
            yield Item(name=name)

    @app.get("/lines")
    @decorated
    def lines() -> Iterator[Item]:
        for name in "ab":
            yield Item(name=name)

    @app.put("/embedded")
    @decorated
    async def embedded(item: Annotated[Item, Body(embed=True)], response: Response) -> None:
        response.headers["x-mark"] = item.name

    app.include_router(router)
    return app


@pytest.mark.parametrize(
    "decorated",
    [
        limit("5/minute"),
        limit("5/minute", cost=2, charge_when=lambda shown: shown.status_code == 401),
        lambda function: limit("5/minute")(limit("9/hour")(function)),
        lambda function: exempt(limit("9/hour")(function)),
    ],
    ids=["one", "outcome", "stacked", "exempt"],
)
def test_the_document_is_the_same_with_and_without_the_decorator(decorated: Decorator) -> None:
    assert described(decorated).openapi() == described(plain).openapi()


def test_the_document_is_the_same_with_and_without_the_dependency() -> None:
    bare, limited = FastAPI(), FastAPI(dependencies=[Depends(RateLimit("1/minute"))])
    for app in (bare, limited):
        app.add_api_route("/items", settings)
    assert bare.openapi() == limited.openapi()


@pytest.mark.parametrize("decorated", [plain, limit("99/minute", limiter=still_limiter())])
def test_an_endpoint_is_called_with_what_it_asks_for(decorated: Decorator) -> None:
    client = Client(described(decorated))
    made = client.post("/items/7?q=a&q=b", json={"name": "spade"}, headers={"token": "t"})
    assert (made.status_code, made.json()) == (201, {"name": "spade"})
    assert client.post("/items/7", json={"price": "?"}).status_code == 422
    assert client.get("/items/7").json() == {"name": "7", "price": 1.0}
    for path in ("/stream", "/lines"):
        streamed = client.get(path)
        assert streamed.headers["content-type"] == "application/jsonl"
        assert streamed.text.splitlines() == [
            '{"name":"a","price":1.0}',
            '{"name":"b","price":1.0}',
        ]
    embedded = client.ask("PUT", "/embedded", json={"item": {"name": "spade"}})
    assert embedded.headers["x-mark"] == "spade"


def test_a_decorated_endpoint_is_of_the_same_kind_and_name() -> None:
    async def one(x: int) -> None: ...
    def two(x: int) -> None: ...

    functions: list[Callable[[int], Any]] = [one, two]
    for function in functions:
        wrapper = limit("1/s")(function)
        assert inspect.iscoroutinefunction(wrapper) is inspect.iscoroutinefunction(function)
        assert wrapper.__name__ == function.__name__
        assert wrapper.__doc__ == function.__doc__
