"""The auditor: draws seeded markets and hunts for violations of what the auction promises."""
