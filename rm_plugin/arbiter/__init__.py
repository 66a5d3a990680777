"""The arbiter: pure code that decides rounds, auctions, leftovers and leases."""
