"""Codec of TWITTER_ELECTION: posts with hashtags, as Twitter's API writes them or as `{"timestamp", "hashtags"}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skewless.lab.datasets.line_codec import milliseconds
from skewless.stages.splitter.settings import SplitterSettings

ELECTION_DAY = "ElectionDay"
CANDIDATES = ("trump", "pence", "clinton", "hillary", "kaine")
SLOGANS = ("makeamericagreatagain", "imwith", "strongertogether")
ELECTIONS = ("election", "elección", "eleccion", "eleição", "eleicao", "élection", "elezioni", "wahl")
TOPICS = ("vote", "voting", "poll", "president", "debate", "democrat", "republican", "america", "us", "usa")
ELECTION_WORDS = (*CANDIDATES, *SLOGANS, *ELECTIONS, *TOPICS)
"""A hashtag that contains one of these words, in upper or lower case, counts as ELECTION_DAY."""


class Tag(msgspec.Struct, gc=False):
    """One hashtag of Twitter's API."""

    text: str


class Entities(msgspec.Struct, gc=False):
    """Entities that Twitter's API extracted from a text."""

    hashtags: list[Tag]


class Post(msgspec.Struct, gc=False):
    """A post of either form."""

    timestamp_ms: str | int | None = None
    timestamp: int | float | str | None = None
    entities: Entities | None = None
    hashtags: list[str] | None = None


class PostCodec:
    """See `LineCodec`. A record is `{"timestamp", "hashtags"}`. A line is such an object, or one of Twitter's API."""

    has_time = True

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Post).decode

    def convert(self, line: bytes, time: int) -> tuple[bytes, int]:  # noqa: ARG002 - posts have their own
        """See `LineCodec.convert`."""
        post = self._decode(line)
        post_time: float | str | None = post.timestamp
        tags = post.hashtags
        if post.entities is not None:
            post_time, tags = post.timestamp_ms, [tag.text for tag in post.entities.hashtags]
        if post_time is None or tags is None:
            raise ValueError("no time or no hashtags")
        instant = milliseconds(post_time)
        if post.entities is None and post_time == instant:
            return line, instant
        return self.write((instant, tags)), instant

    def write(self, fields: Sequence[Any]) -> bytes:
        """See `LineCodec.write`. The fields are time and hashtags."""
        time, tags = fields
        return msgspec.json.encode({"timestamp": time, "hashtags": tags})

    def splitter(self) -> SplitterSettings:
        """See `LineCodec.splitter`. Each hashtag without a `?` becomes a tuple."""
        key = {"field": "hashtags[]", "drop_if_contains": ["?"], "rename_if_contains": {ELECTION_DAY: ELECTION_WORDS}}
        return SplitterSettings.model_validate({"format": "json", "key": key, "time": {"field": "timestamp"}})
