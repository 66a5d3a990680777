"""What an app is, how long it takes on GPUs, and how far from fair it is."""
