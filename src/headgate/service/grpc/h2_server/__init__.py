"""A gRPC server on asyncio and the `zttp` parser, for calls that are answered at once.

    socket -> connection (HTTP/2: frames, floods) -> calls (gRPC: messages, statuses) -> methods

A call whose method has its reply ready is answered while its bytes are being read: no task, no
queue. zttp does HTTP/2 without I/O and has bounds of its own for frames, headers and streams;
what it leaves to its user (time, unread replies, pings) is bounded in `connection`.
"""
