"""Find the ResourceManager's address: `--rm`, else the environment, else the default."""

from __future__ import annotations

from collections.abc import Mapping

from themis.addresses import is_address
from themis.config.defaults import DEFAULT_RM_ADDRESS, RM_ADDRESS_VARIABLE
from themis.errors import InputError


def rm_address(given: str | None, environment: Mapping[str, str]) -> str:
    """Return the address to connect to: `HOST:PORT`, or several with commas between, of which one serves.

    Args:
        given: The value of `--rm`, or None if it is not given.
        environment: The environment, for THEMIS_RM.

    Raises:
        InputError: An address is not HOST:PORT.
    """
    if given is not None:
        return _checked(given, "--rm")
    named = environment.get(RM_ADDRESS_VARIABLE, "")
    return _checked(named, RM_ADDRESS_VARIABLE) if named else DEFAULT_RM_ADDRESS


def _checked(address: str, source: str) -> str:
    if not all(is_address(each) for each in address.split(",")):
        raise InputError(f"{source} must be HOST:PORT", value=address, remedy=f"for example {DEFAULT_RM_ADDRESS}")
    return address
