"""Where policies come from: files, read whole and watched for changes.

files (what is there) -> reload (is it new, is it good) -> watching (a thread or a task that asks)
"""

from headgate.control.files import Loaded, PolicyFiles
from headgate.control.state import State
from headgate.control.watching import AsyncPolicyWatcher, PolicyWatcher

__all__ = ["AsyncPolicyWatcher", "Loaded", "PolicyFiles", "PolicyWatcher", "State"]
