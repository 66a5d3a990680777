"""The app master's own page: its jobs, their logs, the same as JSON."""
