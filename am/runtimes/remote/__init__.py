"""Tasks in containers on other machines: a small host process in each talks to the app master."""
