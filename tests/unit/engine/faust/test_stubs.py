"""Tables of the methods of Faust that are refused or do nothing."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from faust.transport import base
from faust.transport.consumer import Consumer as FaustConsumer

from skewless.engine.faust.driver import Consumer, Producer
from skewless.engine.faust.stubs import CONSUMER, PRODUCER, Ignored, Refused
from skewless.errors import ConfigurationError

CASES = [
    *(pytest.param(FaustConsumer, Consumer, name, stub, id=name) for name, stub in CONSUMER.items()),
    *(pytest.param(base.Producer, Producer, name, stub, id=f"producer {name}") for name, stub in PRODUCER.items()),
]


@pytest.mark.parametrize(("original", "driver", "name", "stub"), CASES)
def test_stub_replaces_a_method_of_faust_of_its_kind(
    original: type, driver: type, name: str, stub: Refused | Ignored
) -> None:
    assert inspect.iscoroutinefunction(getattr(original, name)) == stub.is_async
    method: Any = getattr(driver, name)
    assert inspect.iscoroutinefunction(method) == stub.is_async

    def call() -> object:
        result = method(None)
        return asyncio.run(result) if stub.is_async else result

    if isinstance(stub, Refused):
        with pytest.raises(ConfigurationError, match=r"does not work over this transport: .* app\.executor"):
            call()
    else:
        assert call() == stub.result()


def test_driver_leaves_no_method_of_faust_abstract() -> None:
    assert not getattr(Consumer, "__abstractmethods__", None)
    assert not getattr(Producer, "__abstractmethods__", None)
