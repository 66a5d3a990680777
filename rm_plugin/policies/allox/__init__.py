"""AlloX: jobs over interchangeable device types by minimum-cost matching, fair over time (EuroSys 2020)."""
