"""What a user may set about the groupings: each has the parameters of its own under its name."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.model import Model


class DynamicKeyOptions(Model):
    """Parameters of `dynamic_key`; times follow `clock`."""

    rules: Literal["published", "reference"] = Field(
        "published",
        description="published: as it was described; reference: as its program decides, with loads in whole percent.",
    )
    initial_workers: int = Field(2, ge=1, le=1_000, description="Workers that a key has at first, and at least.")
    distinct_keys: int = Field(
        100,
        ge=10,
        le=1_000_000,
        description="Keys whose tuples are counted: 10 % of the places are for old, 40 % for teenage, 50 % for baby.",
    )
    warm_up_s: int = Field(
        15, ge=0, le=86_400, description="For so long after the first tuple no key gets more workers."
    )
    check_interval_s: int = Field(
        60, ge=0, le=86_400, description="A key gets or loses a worker at most once in this time."
    )
    promotion_interval_s: int = Field(
        15,
        ge=1,
        le=86_400,
        description="Baby keys are promoted each time this has passed, teenage ones every 4th time.",
    )
    evict_after_s: int = Field(
        3_600, ge=1, le=31_536_000, description="Published rules: a key without a tuple for so long is forgotten."
    )
    overfill: int = Field(
        1_000_000,
        ge=1,
        le=10_000_000,
        description="Most baby keys between two promotions, to bound memory; further ones are routed, not counted.",
    )


class ChoicesOptions(Model):
    """`d_choices` and `w_choices`: head keys, found with a sketch, have more candidates than the tail's two."""

    head_share: float = Field(
        0.2, gt=0, le=1, description="A key is in the head while its share of all tuples is above head_share / W."
    )
    sketch_size: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Counters of the SpaceSaving sketch, about 60 bytes each; more than W / head_share are needed.",
    )
    epsilon: float = Field(
        1e-4, gt=0, lt=1, description="d_choices: imbalance, as a share of all tuples, up to which fewer choices do."
    )


class ConsistentOptions(Model):
    """`consistent`: a ring of workers, none of which may get much more than the average."""

    slack: float = Field(
        0.25, ge=0.001, le=10, description="Capacity of a worker is (1 + slack) x the average load, rounded up."
    )
    points: int = Field(100, ge=1, le=1_000, description="Points of each worker on the ring; more make arcs more even.")


class EvenOptions(Model):
    """`even`: every key as many workers as its share needs."""

    buckets: int = Field(
        32_768,
        ge=256,
        le=1_048_576,
        description="Keys share this many entries of 12 bytes: keys in the bucket of a hot key are spread with it.",
    )
    tolerance: int = Field(
        24,
        ge=1,
        le=1_000_000,
        description="Tuples by which a worker may lead the mean before a light key avoids it: for 50 workers or more, "
        "up to twice as many for fewer, and up to 2.5 times as many where heavy keys can even it out.",
    )
    memory: int = Field(
        5_000,
        ge=100,
        le=10_000_000,
        description="Tuples per worker after which loads and shares have aged to 37 %: how fast it follows a drift.",
    )


class GroupingOptions(Model):
    """The parameters of all groupings; the defaults are those of the papers."""

    clock: Literal["processing", "event"] = Field(
        "processing", description="What a grouping's own time follows: the router's clock, or the tuples' event time."
    )
    dynamic_key: DynamicKeyOptions = Field(
        DynamicKeyOptions.model_validate({}), description="Parameters of the grouping dynamic_key."
    )
    choices: ChoicesOptions = Field(
        ChoicesOptions.model_validate({}), description="Parameters of d_choices and w_choices."
    )
    consistent: ConsistentOptions = Field(ConsistentOptions.model_validate({}), description="Parameters of consistent.")
    even: EvenOptions = Field(EvenOptions.model_validate({}), description="Parameters of even.")
