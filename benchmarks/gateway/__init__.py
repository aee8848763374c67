"""What the gateway's three ways to decide cost, beside the same Envoy that decides nothing."""
