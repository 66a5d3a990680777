"""The agent: what an app master says of its app to the arbiter. Pure; one evaluation for one app or thousands.

From an offer to a bid: `bids/bidding.py` (`make_bids`), `bids/candidate_tables.py` and `candidates/` for what an app
may ask for, `model/` for the time and the value of it, `bids/candidate_set.py` and `bids/dominance.py` for what is
sent.

* `model`: views of an app and its cluster, T on gangs, demands, rho and values.
* `packing`: the end of jobs that queue on gangs (`core/packing.c`).
* `candidates`: kinds of gangs, and which multisets of them a bid compares.
* `bids`: reports and bids.
"""
