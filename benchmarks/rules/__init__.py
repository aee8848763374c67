"""What it costs to find the rules for a request: 10 rules beside 10,000."""
