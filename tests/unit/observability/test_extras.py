"""What needs a package that is not installed says which extra to install."""

import importlib
import sys

import pytest

from headgate.errors import HeadgateError, MissingPackageError


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("headgate.observability.prometheus", "prometheus_client", "prometheus"),
        ("headgate.observability.otel", "opentelemetry", "otel"),
    ],
)
def test_the_extra_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingPackageError, match=rf"pip install 'headgate\[{extra}\]'") as raised:
        importlib.import_module(module)
    assert isinstance(raised.value, HeadgateError)
    assert raised.value.name is not None
    assert raised.value.name.partition(".")[0] == package
