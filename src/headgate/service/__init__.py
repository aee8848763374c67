"""The decision service: decides requests by the rules of a policy, over HTTP and gRPC.

startup -> supervisor -> worker -> container and listeners -> http/, admin/, rls/, rlqs/ -> core

A process is started by `startup`. Read `worker` first, then `container`.
"""
