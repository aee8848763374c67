"""What leases and syncing save, and what they cost: round trips against overshoot."""
