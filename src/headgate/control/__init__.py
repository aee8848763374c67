"""Where policies come from: files and storages, read whole, watched for changes, and edited.

For an app that reads its rules from files:
files (what is there) -> reload (is it new, is it good) -> watching (a thread or a task that asks)

For a service whose rules are changed while it runs:
revision -> storage (a file, etcd, memory) -> feed (keeps the newest in force)
                    ^ editing (each edit whole and good, or none) <- preview, audit
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
