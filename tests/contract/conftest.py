"""Django is configured before the contracts are read; each test overrides what it needs."""

from tests.unit.integrations.django import conftest  # noqa: F401 (it configures Django)
