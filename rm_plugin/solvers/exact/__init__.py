"""The exact winner determination: our own method, with a small compiled core."""
