"""An integration whose framework is not installed names the extra to install."""

import importlib
import sys

import pytest

from headgate.errors import MissingPackageError


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("headgate.integrations.grpc", "grpc", "grpc"),
        ("headgate.integrations.celery", "celery", "celery"),
        ("headgate.integrations.aiohttp_server", "aiohttp", "aiohttp"),
        ("headgate.integrations.litestar", "litestar", "litestar"),
    ],
)
def test_the_extra_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingPackageError, match=rf"pip install 'headgate\[{extra}\]'"):
        importlib.import_module(module)
