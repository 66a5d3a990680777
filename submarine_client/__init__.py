"""The submarine command: submitting and watching apps."""
