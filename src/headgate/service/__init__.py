"""The decision service: the rules of a policy, asked over HTTP and gRPC."""
