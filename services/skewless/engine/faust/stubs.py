"""Methods of Faust's consumer and producer that this transport refuses, or that do nothing because the engine does it.

Two tables name them with the reason. `stubs` makes the methods from a table, as the first base class of the driver's
classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from skewless.errors import ConfigurationError

STOCK_CONSUMER = "the consumer belongs to its thread; agents process batches through app.executor"


class Refused(NamedTuple):
    """A method that raises ConfigurationError: its use would break exactness without notice."""

    operation: str
    """What the caller has tried, for the message."""
    is_async: bool = True


class Ignored(NamedTuple):
    """A method that does nothing."""

    reason: str
    result: Callable[[], object] = lambda: None
    """Makes the result."""
    is_async: bool = True


Table = Mapping[str, Refused | Ignored]

CONSUMER: Table = {
    "create_topic": Refused("creating a topic (`skewless topics apply` does it)"),
    "_commit": Refused("committing from an agent"),
    "_seek": Refused("seeking"),
    "seek_wait": Refused("seeking"),
    "_getmany": Refused("fetching records one by one"),
    "_to_message": Refused("fetching records one by one", is_async=False),
    "position": Refused("asking for a position"),
    "highwater": Refused("asking for a high watermark, which only tables need,", is_async=False),
    "highwaters": Refused("asking for high watermarks, which only tables need,"),
    "earliest_offsets": Refused("asking for the earliest offsets, which only tables need,"),
    "key_partition": Refused("choosing a partition by Faust", is_async=False),
    "ack": Ignored("the executor tracks batches; Faust would ack a batch whose agent crashed", bool, is_async=False),
    "commit": Ignored("the thread commits", bool),
    "perform_seek": Ignored("the thread starts each partition at its committed offset"),
    "seek_to_committed": Ignored("as perform_seek", dict),
    "wait_empty": Ignored("the executor tracks what is in flight"),
    "pause_partitions": Ignored("the thread applies back-pressure", is_async=False),
    "resume_partitions": Ignored("the thread applies back-pressure", is_async=False),
    "on_buffer_full": Ignored("the thread limits what is in flight", is_async=False),
    "on_buffer_drop": Ignored("the thread limits what is in flight", is_async=False),
    "close": Ignored("the thread closes its consumer", is_async=False),
    "topic_partitions": Ignored("the thread checks the number of partitions", is_async=False),
}
PRODUCER: Table = {
    "send": Refused("sending by Faust"),
    "send_and_wait": Refused("sending by Faust"),
    "send_soon": Refused("sending by Faust", is_async=False),
    "on_start": Ignored("the engine has its own output"),
    "flush": Ignored("a commit flushes"),
}


def refuse(operation: str) -> NoReturn:
    """Raise ConfigurationError for a use of Faust that does not work here."""
    raise ConfigurationError(f"{operation} does not work over this transport: {STOCK_CONSUMER}")


def stubs(name: str, table: Table) -> Any:
    """Return a class with the methods of a table."""
    methods = {method: _method(method, stub) for method, stub in table.items()}
    return type(name, (), {"__module__": __name__, "__doc__": f"Stubs of Faust's {name}.", **methods})


def _method(name: str, stub: Refused | Ignored) -> Callable[..., Any]:
    def call(_self: object, *_args: Any, **_options: Any) -> Any:
        if isinstance(stub, Refused):
            refuse(stub.operation)
        return stub.result()

    async def call_async(_self: object, *_args: Any, **_options: Any) -> Any:
        return call(_self)

    method = call_async if stub.is_async else call
    method.__name__ = name
    method.__doc__ = f"Refuse {stub.operation}." if isinstance(stub, Refused) else f"Do nothing: {stub.reason}."
    return method
