"""Quantities that are measured but not asserted: envy, gains from misreporting, payments, sharing incentive."""
