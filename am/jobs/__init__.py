"""A job's life: start, checkpoint, stop, resize, resume, finish."""
