"""The application master: one process an app."""
