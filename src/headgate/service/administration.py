"""The admin API, assembled from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headgate.config.values import AdminToken, digest_of
from headgate.control.audit import AuditFile, AuditLog
from headgate.control.editor import PolicyEditor
from headgate.control.live_counters import MemoryCounters
from headgate.service.admin import AdminApp, Certificate
from headgate.stores.memory import MemoryStore

if TYPE_CHECKING:
    from headgate.config.service import Settings
    from headgate.control.live_counters import LiveCounters
    from headgate.control.source import PolicySource
    from headgate.control.watcher import PolicyWatcher
    from headgate.service.core import Core
    from headgate.service.live import Live

FIRST_AUTHOR = "admin"
"""The name of the token without one, in the audit log."""


def make_admin(
    core: Core,
    settings: Settings,
    source: PolicySource,
    watcher: PolicyWatcher,
    *,
    picture: Live | None = None,
) -> AdminApp:
    """Make the admin API for the rules in *source*; closed without tokens and certificates."""
    path = settings.audit_file
    certificates = [
        Certificate(one.name, one.role, one.subject) for one in settings.admin_certificates
    ]
    return AdminApp(
        core,
        PolicyEditor(source, memory=watcher.memory, enforced=lambda: watcher.state.revision),
        watcher,
        tokens_of(settings),
        AuditLog() if path is None else AuditFile(Path(path)),
        live=_live(core, settings),
        picture=picture,
        certificates=certificates,
    )


def tokens_of(settings: Settings) -> tuple[AdminToken, ...]:
    """All tokens, including the one without a name."""
    if not settings.admin_token:
        return settings.admin_tokens
    first = AdminToken(FIRST_AUTHOR, "write", digest_of(settings.admin_token))
    return (first, *settings.admin_tokens)


def _live(core: Core, settings: Settings) -> LiveCounters | None:
    """The counters that can be listed: those of Redis, or of this worker's memory. Shared memory
    cannot be listed, because it keeps no names."""
    store = core.rules.engine.store
    if settings.is_in_shared_memory:
        return None
    if isinstance(store, MemoryStore):
        return MemoryCounters(store, namespace=settings.namespace)
    from headgate.control.redis_counters import RedisCounters

    return RedisCounters(settings.store, namespace=settings.namespace)
