"""The ResourceManager's page, REST interface and metrics: they tell what is, and change nothing."""
