"""The paper's evaluation (NSDI'20, section 6; docs/explanation/reproduction.md).

Each experiment plans runs, evaluates them and draws its figure.
"""
