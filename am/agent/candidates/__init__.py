"""Which bundles an app may ask for."""
