"""Traffic replayed against rules on virtual time: who would have been limited, and when."""
