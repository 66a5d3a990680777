"""Configuration: YAML with a schema; unknown keys are refused with the nearest known one."""
