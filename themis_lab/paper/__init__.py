"""The paper's evaluation (themis.md, section 9): each experiment plans runs, evaluates them and draws its figure."""
