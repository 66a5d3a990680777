"""The paper's evaluation (themis.md, section 9). Each experiment plans runs, evaluates them and draws its figure."""
