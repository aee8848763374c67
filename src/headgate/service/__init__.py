"""The decision service: decides requests by the rules of a policy, over HTTP and gRPC.

running -> supervisor -> worker -> container and listeners -> http/, admin/, rls/, rlqs/ -> core

A process is started by `running`. Read `worker` first, then `container`.
"""
