"""What is measured and not asserted: envy, gains from misreporting, payments, sharing incentive."""
