"""The evaluation of AlloX (EuroSys 2020, section 5): the pure decisions over jobs that are numbers."""
