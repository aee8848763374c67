"""Recorded behaviour: what Headgate sends, stores and prints, compared with files.

`wire/` holds what programs rely on (bytes, status codes, headers, keys, exit codes); `text/` holds
prose (messages, help, logs). `make goldens` records all of them again; review the diff. A change in
`wire/` needs a reason in its commit; a change in `text/` is a change of wording.

Recordings go through interfaces that do not move: HTTP, gRPC, the command line, Redis. Python calls
go through `python_api.py` alone.
"""
