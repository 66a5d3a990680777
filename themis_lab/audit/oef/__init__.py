"""The auditor of OEF: random instances, what must hold on them, and what its paper claims in vain."""
