"""The control plane over HTTP: rules, their history, single counters; for those with a token.

app         who may, which path leads where, what is noted
tokens      who is calling
rules       one rule, many rules, the kill switch
policies    the whole policy, its history, going back
keys        single counters: look, reset, grant, block
reports     how things stand, and who did what
live        what this node is doing, now and lately
openapi     all of that as a document
"""

from headgate.service.admin.app import AdminApp
from headgate.service.admin.auth import Certificate, Token

__all__ = ["AdminApp", "Certificate", "Token"]
