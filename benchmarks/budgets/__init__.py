"""The performance budgets: every path that users run, beside a peer or a floor in the same run."""
