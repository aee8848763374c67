"""Policy sources (file, memory, etcd), one watcher that keeps the newest in force, and the editor.

revision -> source (file_source, etcd, memory) -> watcher (read first)
                ^ editor (each edit valid and whole, or none) <- preview, audit
"""

from headgate.control.audit import AuditFile, AuditLog
from headgate.control.editor import Edited, EditRequest, PolicyEditor
from headgate.control.file_source import FileSource
from headgate.control.files import Loaded, PolicyFiles
from headgate.control.source import MemorySource
from headgate.control.watched_policy import WatchedPolicy
from headgate.control.watcher import PolicyWatcher, State

__all__ = [
    "AuditFile",
    "AuditLog",
    "EditRequest",
    "Edited",
    "FileSource",
    "Loaded",
    "MemorySource",
    "PolicyEditor",
    "PolicyFiles",
    "PolicyWatcher",
    "State",
    "WatchedPolicy",
]
