"""What a limit adds to a request that goes through an ASGI app, without a network."""
