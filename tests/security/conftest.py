"""Django is configured before its apps are read; each target overrides what it needs."""

from tests.unit.integrations.django import conftest  # noqa: F401 (it configures Django)
