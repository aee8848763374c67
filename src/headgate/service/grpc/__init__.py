"""A gRPC server on asyncio and the `zttp` HTTP/2 parser, for methods from bytes to bytes.

    socket -> server -> connection (HTTP/2: frames, floods) -> calls (gRPC: messages, statuses)

A method whose reply is ready is answered while its bytes are being read: no task, no queue. zttp
parses HTTP/2 without I/O and bounds frames, headers and streams; `connection` bounds the rest
(time, unread replies, control frames). Read `method` first, then `server`.
"""
