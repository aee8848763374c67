"""What the decision service and its control plane cost and how long they take."""
