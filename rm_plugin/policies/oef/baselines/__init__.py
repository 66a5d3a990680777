"""The allocation rules that OEF is compared with, one a file."""
