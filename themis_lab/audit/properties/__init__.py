"""Properties that must hold in every market; each violation is a defect."""
