"""The auditor of OEF: random instances, what must hold on them, and which claims of its paper fail."""
