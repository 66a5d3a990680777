"""Properties that must hold in every market; a finding is a defect."""
