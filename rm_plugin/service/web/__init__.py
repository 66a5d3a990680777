"""The ResourceManager's page, REST interface and metrics. All are read-only."""
