"""Tests that are collected only for subjects with certain capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def needs(*capabilities: str) -> Callable[[T], T]:
    """Collect a test, or all tests of a class, only for a subject with all *capabilities*."""

    def mark(subject: T) -> T:
        tests = _tests_in(subject).values() if isinstance(subject, type) else [subject]
        for test in tests:
            vars(test)["needs"] = capabilities
        return subject

    return mark


class Contract:
    """A class of tests, whose class variables declare the capabilities of its subject.

    Each subclass decides for itself which tests apply, also those that its base class excludes.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        tests: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            tests |= {name: test for name, test in _tests_in(base).items() if test is not None}
        for name, test in tests.items():
            setattr(cls, name, test if cls.applies(getattr(test, "needs", ())) else None)

    @classmethod
    def applies(cls, capabilities: tuple[str, ...]) -> bool:
        """Return True if the subject has all *capabilities*."""
        return all(getattr(cls, capability) for capability in capabilities)


def _tests_in(cls: type) -> dict[str, Any]:
    return {name: test for name, test in vars(cls).items() if name.startswith("test_")}
