"""Django is configured before the contracts are read; each test overrides what it needs."""

import secrets

import django
from django.conf import settings

if not settings.configured:  # which can be done once in a process
    settings.configure(
        SECRET_KEY=secrets.token_hex(),
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=(),
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    django.setup()
