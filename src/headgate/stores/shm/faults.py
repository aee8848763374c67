"""What the kernel refuses, as the error of a store."""

from __future__ import annotations

import errno
from typing import Final

from headgate.errors import StoreError

_FULL: Final = {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG}
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP}


def store_error(error: OSError) -> StoreError:
    """*error* in the words of Headgate."""
    if error.errno in _FULL:
        return StoreError(f"no room for the shared memory: {error}", reason="out_of_memory")
    if error.errno in _DENIED:
        return StoreError(f"the shared memory cannot be opened: {error}", reason="denied")
    return StoreError(f"the shared memory cannot be used: {error}", reason="unavailable")
