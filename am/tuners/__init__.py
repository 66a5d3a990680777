"""Tuners: what an app's jobs should run next, pure code behind one port."""
