"""Tests that are collected only for subjects with certain capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def needs(*capabilities: str) -> Callable[[T], T]:
    """Collect a test, or all tests that a class declares, only for a subject with all
    *capabilities*."""

    def mark(subject: T) -> T:
        tests = vars(subject)["declared_tests"].values() if isinstance(subject, type) else [subject]
        for test in tests:
            vars(test)["needs"] = (*vars(test).get("needs", ()), *capabilities)
        return subject

    return mark


class Contract:
    """A class of tests, whose class variables declare the capabilities of its subject.

    Each subclass decides for itself which tests apply, also those that its base class excludes.
    """

    declared_tests: ClassVar[dict[str, Any]] = {}
    """The tests in the body of this class, by name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.declared_tests = {name: one for name, one in vars(cls).items() if name[:5] == "test_"}
        for base in reversed(cls.__mro__):
            for name, test in vars(base).get("declared_tests", {}).items():
                setattr(cls, name, test if cls.applies(getattr(test, "needs", ())) else None)

    @classmethod
    def applies(cls, capabilities: tuple[str, ...]) -> bool:
        """Return True if the subject has all *capabilities*."""
        return all(getattr(cls, capability) for capability in capabilities)
