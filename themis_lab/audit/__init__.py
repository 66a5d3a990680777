"""The auditor: it checks the auction's properties on random markets that follow from a seed."""
