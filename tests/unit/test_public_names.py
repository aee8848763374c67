"""The names that are public, and what importing them costs."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

import headgate

PUBLIC = {
    "GCRA",
    "Accuracy",
    "AsyncRateLimiter",
    "AsyncReservation",
    "AsyncSlot",
    "Store",
    "Concurrency",
    "CostError",
    "Decision",
    "DenyAll",
    "FixedWindow",
    "HeadgateError",
    "Hit",
    "KeyInvalidError",
    "LeakyBucket",
    "LeakyQueue",
    "Limit",
    "LimitError",
    "MemoryStore",
    "NotationError",
    "OnFailure",
    "OptionError",
    "PartialHit",
    "RateLimitedError",
    "RateLimiter",
    "Reservation",
    "SettledError",
    "SlidingWindowCounter",
    "SlidingWindowLog",
    "Slot",
    "StoreError",
    "StoreURLError",
    "TokenBucket",
    "Unlimited",
    "UsageError",
    "__version__",
    "burst_credits",
    "parse_limit",
    "parse_limits",
}
HEAVY = {
    "redis",
    "numpy",
    "yaml",
    "grpc",
    "httpx",
    "requests",
    "pytest",
    "hypothesis",
    "unittest",
    "multiprocessing",
    "sqlite3",
    "http.client",
    "importlib.metadata",
}


def test_all_is_exact() -> None:
    assert set(headgate.__all__) == PUBLIC
    assert len(headgate.__all__) == len(PUBLIC)


def test_everything_that_the_package_imports_is_in_all() -> None:
    tree = ast.parse(inspect.getsource(headgate))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    assert names | {"__version__"} == set(headgate.__all__)


@pytest.mark.parametrize("name", ["headgate", "headgate.stores", "headgate.testing"])
def test_every_public_name_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert [missing for missing in module.__all__ if not hasattr(module, missing)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("name", ["headgate", "headgate.testing"])
def test_importing_it_imports_nothing_heavy_and_nothing_foreign(name: str) -> None:
    code = (
        f"import sys; before = set(sys.modules); import {name}; print(*set(sys.modules) - before)"
    )
    done = subprocess.run(  # noqa: S603 (our own interpreter, our own text)
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "headgate.limiter" in loaded
    assert loaded & HEAVY == set()
    foreign = {module.partition(".")[0] for module in loaded} - set(sys.stdlib_module_names)
    assert foreign == {"headgate"}


def test_every_error_is_a_headgate_error_and_the_store_errors_are_not_denials() -> None:
    errors = [getattr(headgate, name) for name in PUBLIC if name.endswith("Error")]
    assert all(issubclass(error, headgate.HeadgateError) for error in errors)
    assert not issubclass(headgate.StoreError, headgate.RateLimitedError)
