"""Changes of the hot keys: JSON in `hot-keys`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skewless.wire.headers import public_headers
from skewless.wire.tuples import Int64

HOT_KEY = "skewless.hot-key.v1"
HOT_KEY_HEADERS = public_headers(HOT_KEY)


class HotKeyChange(msgspec.Struct):
    """A key became hot, or is no longer hot. A key is hot while it has more tuples than an even share of one worker."""

    key: Annotated[str, Meta(description="The key.")]
    hot: Annotated[bool, Meta(description="Whether the key is hot from this tick on.")]
    share: Annotated[float, Meta(description="Share of the key in the tuples of the tick.", ge=0, le=1)]
    worker_share: Annotated[
        float, Meta(description="Even share of one worker: 1 / number of workers. A key above it is hot.", gt=0, le=1)
    ]
    workers: Annotated[int, Meta(description="Number of workers that processed the key in the tick.", ge=0)]
    tuples: Annotated[int, Meta(description="Tuples of the key in the tick.", ge=0)]
    hot_since: Annotated[Int64, Meta(description="Start of the tick in which the key became hot.")]
    tick_start: Annotated[
        Int64, Meta(description="Start of the tick (inclusive): event time in ms since the epoch (UTC).")
    ]
    tick_end: Annotated[Int64, Meta(description="End of the tick (exclusive).")]
