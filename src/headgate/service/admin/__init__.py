"""The admin API over HTTP: rules, their history, single counters; for callers with a token.

app (read first: routes, errors, audit) -> rules, keys, callers, reports -> operations, call, auth
"""

from headgate.service.admin.app import AdminApp
from headgate.service.admin.call import AdminContext

__all__ = ["AdminApp", "AdminContext"]
