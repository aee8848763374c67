"""Compare release 0.1 with the working tree on random limits, policies, requests and histories."""
