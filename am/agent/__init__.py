"""The agent: finish-time fairness and bids, pure code."""
