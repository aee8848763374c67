"""The packages of the clients: none is needed until one is used, and it says which one."""

import importlib
import pickle
import subprocess
import sys

import aiohttp
import httpx
import httpx2
import pytest
import requests

from headgate import clients
from headgate.clients.aiohttp import AiohttpNotSentError
from headgate.clients.httpx import HttpxNotSentError
from headgate.clients.httpx2 import Httpx2NotSentError
from headgate.clients.requests import PacedAdapter, RequestsNotSentError
from headgate.errors import HeadgateError

CLIENTS = ("httpx", "httpx2", "requests", "aiohttp")
ERRORS = {
    HttpxNotSentError: httpx.TransportError,
    Httpx2NotSentError: httpx2.TransportError,
    RequestsNotSentError: requests.RequestException,
    AiohttpNotSentError: aiohttp.ClientError,
}


@pytest.mark.parametrize("package", CLIENTS)
def test_a_package_that_is_missing_is_named_with_its_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"headgate.clients.{package}"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'headgate\[{package}\]'") as caught:
        importlib.import_module(name)
    assert isinstance(caught.value, HeadgateError)


def test_none_is_imported_until_it_is_used() -> None:
    code = "import sys, headgate.clients; print(*sys.modules)"
    done = subprocess.run(  # noqa: S603 (our own interpreter, our own text)
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(CLIENTS) & set(done.stdout.split())


def test_every_public_name_is_there() -> None:
    assert [name for name in clients.__all__ if not hasattr(clients, name)] == []


@pytest.mark.parametrize(("error", "base"), ERRORS.items())
def test_an_error_is_one_of_its_client_and_can_be_pickled(
    error: type[clients.NotSentError], base: type[Exception]
) -> None:
    raised = error("https://a:443", 2.5, "pace", 2)
    again = pickle.loads(pickle.dumps(raised))  # noqa: S301 (our own)
    assert isinstance(again, base)
    assert isinstance(again, clients.NotSentError)
    assert str(again) == str(raised)
    assert "the pace is used up" in str(raised)
    assert (again.origin, again.retry_after) == ("https://a:443", 2.5)
    assert (again.cause, again.attempts) == ("pace", 2)


def test_an_adapter_says_why_it_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(PacedAdapter())
