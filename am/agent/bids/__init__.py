"""Reports and bids of one app or of many."""
