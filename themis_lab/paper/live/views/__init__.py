"""The figures and tables of the paper's testbed evaluation (NSDI'20, section 8), one a module."""
