"""What leases save, and what a decision from one costs."""
