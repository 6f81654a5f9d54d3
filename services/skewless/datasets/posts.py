"""TWITTER_ELECTION: posts with hashtags, as Twitter's API writes them or as `{"timestamp", "hashtags"}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from skewless.datasets.base import Form
from skewless.datasets.shapes import milliseconds
from skewless.splitter.settings import SplitterSettings

ELECTION_DAY = "ElectionDay"
CANDIDATES = ("trump", "pence", "clinton", "hillary", "kaine")
SLOGANS = ("makeamericagreatagain", "imwith", "strongertogether")
ELECTIONS = ("election", "elección", "eleccion", "eleição", "eleicao", "élection", "elezioni", "wahl")
TOPICS = ("vote", "voting", "poll", "president", "debate", "democrat", "republican", "america", "us", "usa")
ELECTION_WORDS = (*CANDIDATES, *SLOGANS, *ELECTIONS, *TOPICS)
"""A hashtag that contains one of these, in upper or lower case, counts as ELECTION_DAY."""


class Tag(msgspec.Struct, gc=False):
    """One hashtag, as Twitter's API writes it."""

    text: str


class Entities(msgspec.Struct, gc=False):
    """What Twitter's API found in a text."""

    hashtags: list[Tag]


class Post(msgspec.Struct, gc=False):
    """A post in either form."""

    timestamp_ms: str | int | None = None
    timestamp: int | float | str | None = None
    entities: Entities | None = None
    hashtags: list[str] | None = None


class Posts:
    """See `Shape`. Raw is what Twitter's API writes, with times in ms; both are JSON."""

    timed = True

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Post).decode
        self._encode = msgspec.json.Encoder().encode

    def convert(self, line: bytes, form: Form, time: int) -> tuple[bytes, int]:  # noqa: ARG002 - posts have their own
        """See `Shape.convert`."""
        post = self._decode(line)
        said: float | str | None = post.timestamp
        tags, written = post.hashtags, "json"
        if post.entities is not None:
            said, tags, written = post.timestamp_ms, [tag.text for tag in post.entities.hashtags], "raw"
        if said is None or tags is None:
            raise ValueError("no time or no hashtags")
        instant = milliseconds(said)
        if written == form and str(said) == str(instant):
            return line, instant
        return self.write((instant, tags), form), instant

    def write(self, fields: Sequence[Any], form: Form) -> bytes:
        """See `Shape.write`; the fields are time and hashtags."""
        time, tags = fields
        if form == "json":
            return self._encode({"timestamp": time, "hashtags": tags})
        text = " ".join(f"#{tag}" for tag in tags)
        entities = {"hashtags": [{"text": tag} for tag in tags]}
        return self._encode({"timestamp_ms": str(time), "text": text, "entities": entities})

    def splitter(self, form: Form) -> SplitterSettings:
        """See `Shape.splitter`: a tuple per hashtag, without those that have a `?`."""
        key, time = ("entities.hashtags[].text", "timestamp_ms") if form == "raw" else ("hashtags[]", "timestamp")
        merged = {"skip": ["?"], "merge": {ELECTION_DAY: ELECTION_WORDS}}
        return SplitterSettings.model_validate(
            {"format": "json", "key": {"field": key, **merged}, "time": {"field": time}}
        )
