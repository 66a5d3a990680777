"""The kernel: what every part of Themis means by a word."""
