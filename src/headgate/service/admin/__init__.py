"""The admin API over HTTP: rules, their history, single counters; for callers with a token.

app         routes, access, the audit record
auth        who is calling
rules       rules, the whole policy, its history and rollback
keys        single counters: look, reset, grant, block
reports     status, live figures, explain, debug tokens
openapi     the OpenAPI paths
"""

from headgate.service.admin.app import AdminApp
from headgate.service.admin.auth import Certificate, Token

__all__ = ["AdminApp", "Certificate", "Token"]
