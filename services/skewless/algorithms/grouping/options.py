"""Settings of the groupings, with one group of parameters for each grouping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from skewless.errors import ConfigurationError
from skewless.settings_base import SettingsModel, plain


class DynamicKeyOptions(SettingsModel):
    """Parameters of `dynamic_key`; times follow `clock`."""

    rules: Literal["published", "reference"] = Field(
        "published",
        description="published: as in the paper; reference: as in the reference program, with loads in whole percent.",
    )
    initial_workers: int = Field(2, ge=1, le=1_000, description="Initial and minimum number of workers of a key.")
    distinct_keys: int = Field(
        100,
        ge=10,
        le=1_000_000,
        description="Keys whose tuples are counted: 10 % of the places are for old, 40 % for teenage, 50 % for baby. A "
        "router does not save its loads if its old and teenage keys exceed 4 MiB, at about 40 bytes and W bits each.",
    )
    warm_up_s: int = Field(
        15, ge=0, le=86_400, description="Time after the first tuple in which no key gets more workers."
    )
    check_interval_s: int = Field(
        60, ge=0, le=86_400, description="A key gets or loses a worker at most once in this time."
    )
    promotion_interval_s: int = Field(
        15,
        ge=1,
        le=86_400,
        description="Interval of the promotion of baby keys. Teenage keys are promoted every 4th time.",
    )
    evict_after_s: int = Field(
        3_600, ge=1, le=31_536_000, description="Published rules: time without a tuple after which a key is evicted."
    )
    max_baby_keys: int = Field(
        1_000_000,
        ge=1,
        le=10_000_000,
        description="Maximum baby keys between two promotions, to bound memory. Further keys are routed, not counted.",
    )


class ChoicesOptions(SettingsModel):
    """Parameters of `d_choices` and `w_choices`: keys of the head, found with a sketch, have more candidates."""

    head_share: float = Field(
        0.2, gt=0, le=1, description="A key is in the head while its share of all tuples is above head_share / W."
    )
    sketch_size: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Counters of the SpaceSaving sketch, about 60 bytes each; more than W / head_share are needed. "
        "A router does not save its loads if more than 174,000 have a key.",
    )
    epsilon: float = Field(
        1e-4,
        gt=0,
        lt=1,
        description="d_choices: accepted imbalance, as a share of all tuples. A larger value results in fewer choices.",
    )


class ConsistentOptions(SettingsModel):
    """Parameters of `consistent`: a ring of workers whose load is bounded relative to the average."""

    slack: float = Field(
        0.25, ge=0.001, le=10, description="Capacity of a worker is (1 + slack) x the average load, rounded up."
    )
    points: int = Field(
        100, ge=1, le=1_000, description="Points of each worker on the ring. More points divide the ring more evenly."
    )


class EvenOptions(SettingsModel):
    """Parameters of `even`: each key gets as many workers as its share needs."""

    hash_buckets: int = Field(
        32_768,
        ge=256,
        le=1_048_576,
        description="Number of hash buckets, 16 bytes each. Keys in the bucket of a hot key are spread with it. "
        "With fewer than 16 per worker, all keys are spread over many workers. "
        "Of 262,000 or more, a router saves the 196,608 heaviest.",
    )
    overload_tolerance: int = Field(
        24,
        ge=1,
        le=1_000_000,
        description="Tuples by which a worker may lead the mean before a light key avoids it, for 50 workers or more. "
        "Up to 2 times as many for fewer workers, and up to 2.5 times as many where heavy keys can compensate for it. "
        "More than a tenth of `decay_tuples` has no effect.",
    )
    decay_tuples: int = Field(
        5_000,
        ge=100,
        le=10_000_000,
        description="Tuples per worker until loads and shares decay to 37 %. Smaller values adapt faster to a drift.",
    )


class GroupingOptions(SettingsModel):
    """Parameters of all groupings. The defaults are those of the papers."""

    clock: Literal["processing", "event"] = Field(
        "processing", description="Time used by the grouping: the router's wall clock, or the tuples' event time."
    )
    dynamic_key: DynamicKeyOptions = Field(
        DynamicKeyOptions.model_validate({}), description="Parameters of the grouping dynamic_key."
    )
    choices: ChoicesOptions = Field(
        ChoicesOptions.model_validate({}), description="Parameters of d_choices and w_choices."
    )
    consistent: ConsistentOptions = Field(ConsistentOptions.model_validate({}), description="Parameters of consistent.")
    even: EvenOptions = Field(EvenOptions.model_validate({}), description="Parameters of even.")


def options_of(given: Mapping[str, Any], *, prefix: str = "options", **defaults: Any) -> GroupingOptions:
    """Return options that a user has given. Raises ConfigurationError with all invalid ones, each after `prefix`."""
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{prefix}: must be a mapping, not {given!r}")
    try:
        return GroupingOptions.model_validate({**defaults, **given})
    except ValidationError as error:
        problems = error.errors(include_url=False)
    unknown = "unknown setting; `skewless config dump` lists the settings of router.*"
    raise ConfigurationError(
        *(
            f"{prefix}: {'.'.join(map(str, found['loc']))}: "
            f"{unknown if found['type'] == 'extra_forbidden' else plain(found)}"
            for found in problems
        )
    )
