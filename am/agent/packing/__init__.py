"""How jobs share gangs: the time at which the last one ends."""
