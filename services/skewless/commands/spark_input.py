"""Which records of a topic a Spark job reads: `--from` and `--until` as offsets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings
from skewless.transport.positions import Positions

WORDS = ("earliest", "latest", "committed")
WHERE = "earliest, latest, committed, a time in ISO 8601, or offsets by partition"


def check(option: str, where: str) -> None:
    """Raise ConfigurationError for what is neither a word, nor offsets, nor a time; no broker is needed."""
    if where not in WORDS and not where.lstrip().startswith("{"):
        instant(option, where)


def spans(positions: Positions, settings: PipelineSettings, first: str, until: str) -> dict[int, tuple[int, int]]:
    """Find first offset and end by partition of the source topic; ConfigurationError for what it does not have."""
    topic = settings.source.topic
    begin, end = positions.begin(topic), positions.end(topic)

    def resolve(option: str, where: str) -> dict[int, int]:
        match where:
            case "earliest":
                return begin
            case "latest":
                return end
            case "committed":
                return begin | committed(positions, settings, "splitter")
        if where.lstrip().startswith("{"):
            return _checked(option, where, begin, end)
        return positions.at_time(topic, instant(option, where))

    starts, ends = begin | resolve("--from", first), end | resolve("--until", until)
    return {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in begin}


def committed(positions: Positions, settings: PipelineSettings, stage: str) -> dict[int, int]:
    """Offsets that a stage has committed; ConfigurationError when the pipeline has never run."""
    source = {"splitter": "source", "router": "tuples", "worker": "worker-input", "aggregator": "partials"}[stage]
    group = f"{settings.name}-{stage}"
    found = positions.committed(group, settings.topic(source))
    if stage == "splitter" and not found:
        raise ConfigurationError(
            f"group {group} has committed nothing of topic {settings.source.topic}: run the pipeline first"
        )
    return {partition: at.offset for partition, at in found.items()}


def instant(option: str, text: str) -> int:
    """Read a time as ms; ConfigurationError if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option}: {text!r} is none of: {WHERE}") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _checked(option: str, text: str, begin: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
    try:
        given = msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError as error:
        raise ConfigurationError(f'{option}: {text} is not offsets by partition like {{"0": 1000}}: {error}') from None
    wrong = [
        f"{option}: partition {partition} has no offset {offset}, "
        + (
            f"it has {begin[partition]} to {end[partition]}"
            if partition in begin
            else f"there are {len(begin)} partitions"
        )
        for partition, offset in given.items()
        if not (partition in begin and begin[partition] <= offset <= end[partition])
    ]
    if wrong:
        raise ConfigurationError(*wrong)
    return given
