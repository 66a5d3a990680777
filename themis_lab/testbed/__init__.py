"""The testbed: live runs on emulated GPUs, their audit and their report."""
