"""The policies that AlloX is compared with, one file each (EuroSys 2020, sections 2.2 and 5.1)."""
