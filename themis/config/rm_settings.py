"""The ResourceManager's settings file: every **Choice** of the specification by name, with its default."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from themis.choices import BundleRule, EmptyBundle, LeaseEnds, Rounding
from themis.config.defaults import DEFAULT_RM_ADDRESS
from themis.config.loader import Section, load


class AuctionSettings(Section):
    """The partial-allocation auction."""

    f: float = Field(default=0.8, ge=0, le=1, description="fairness knob: the worst ceil((1 - f) N) apps bid")
    empty_bundle: EmptyBundle = EmptyBundle.FINITE
    bundle_rule: BundleRule = BundleRule.CONTINUATION
    rounding: Rounding = Rounding.PROBABILISTIC
    payments: bool = True
    solver: str = "exact"
    time_limit_s: float = Field(default=10.0, gt=0)
    keep_markets: int = Field(default=20, ge=0, description="so many of the newest rounds' markets are kept as files")

    @model_validator(mode="after")
    def _empty_bundles_can_count(self) -> AuctionSettings:
        if self.bundle_rule is BundleRule.LEXICOGRAPHIC and self.empty_bundle is not EmptyBundle.LEXICOGRAPHIC:
            raise ValueError(
                "bundle_rule lexicographic values an empty bundle at 0: set empty_bundle lexicographic too"
            )
        return self


class LeaseSettings(Section):
    """Leases, in seconds of real time."""

    duration_s: float = Field(default=600.0, gt=0)
    ends: LeaseEnds = LeaseEnds.ALIGNED
    checkpoint_lead_s: float = Field(default=30.0, ge=0, description="a round for ending leases begins so early")
    grace_s: float = Field(default=30.0, gt=0, description="past its end by so much, a lease is taken by force")

    @model_validator(mode="after")
    def _lead_is_shorter(self) -> LeaseSettings:
        if self.checkpoint_lead_s >= self.duration_s:
            raise ValueError("checkpoint_lead_s must be shorter than the lease's duration_s")
        return self


class RmSettings(Section):
    """A ResourceManager. Relative paths are taken from where the command runs."""

    cluster: Path
    state_dir: Path = Path("out/rm")
    listen: str = DEFAULT_RM_ADDRESS
    engine: Literal["local"] = "local"
    policy: str = "themis"
    auction: AuctionSettings = AuctionSettings()
    lease: LeaseSettings = LeaseSettings()
    coalesce_s: float = Field(default=1.0, ge=0, description="events so close together make one round")
    report_deadline_s: float = Field(default=2.0, gt=0, description="how long apps may take to tell rho")
    bid_deadline_s: float = Field(default=5.0, gt=0)
    heartbeat_s: float = Field(default=1.0, gt=0)
    am_expiry_s: float = Field(default=30.0, gt=0, description="an app master silent for so long is lost")
    am_max_attempts: int = Field(default=2, ge=1)
    time_scale: float = Field(default=1.0, gt=0, description="replayed jobs run so many times faster")
    seed: int = 0
    validate_state: bool = Field(default=False, description="check every invariant after every step")


def load_rm_settings(path: Path) -> RmSettings:
    """Read a settings file; paths in it are taken from where the command runs, like every path on its command line."""
    return load(RmSettings, path)
