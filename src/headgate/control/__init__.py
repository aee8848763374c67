"""Policy sources: files and storages, read whole, watched for changes, and edited.

For an app that reads its rules from files: files -> watcher (a thread or a task).

For a service whose rules change while it runs:
revision -> storage (file_source, etcd, memory) -> feed (keeps the newest in force)
                    ^ editor (each edit valid and whole, or none) <- preview, audit
"""

from headgate.control.audit import AuditFile, AuditLog
from headgate.control.editor import Edited, PolicyEditor, Wish
from headgate.control.feed import FeedState, PolicyFeed
from headgate.control.file_source import FileStorage
from headgate.control.files import Loaded, PolicyFiles
from headgate.control.storage import MemoryStorage
from headgate.control.watcher import AsyncPolicyWatcher, PolicyWatcher, State

__all__ = [
    "AsyncPolicyWatcher",
    "AuditFile",
    "AuditLog",
    "Edited",
    "FeedState",
    "FileStorage",
    "Loaded",
    "MemoryStorage",
    "PolicyEditor",
    "PolicyFeed",
    "PolicyFiles",
    "PolicyWatcher",
    "State",
    "Wish",
]
