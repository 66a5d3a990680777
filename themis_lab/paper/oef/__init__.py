"""The evaluation of OEF (Middleware'24, section 6): rounds of the pure decisions over jobs that are numbers."""
