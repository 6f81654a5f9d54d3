"""Compiles the text of a Protobuf schema to the descriptors of its messages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skewless.errors import ConfigurationError, how_to_add
from skewless.schema_registry.schema import Schema

FILE = "schema.proto"


def compile_text(schema: Schema) -> Any:
    """Return the descriptor of the file with this text. Raises ValueError if it is not valid."""
    try:
        import google.type
        import grpc_tools
        from google.protobuf import descriptor_pb2
    except ImportError as error:
        raise ConfigurationError(
            f"format: the compiler of Protobuf cannot be imported ({error}): {how_to_add('registry')}"
        ) from None
    includes = [Path(grpc_tools.__path__[0], "_proto"), *(Path(folder).parents[1] for folder in google.type.__path__)]
    references = schema.all_references()
    main = FILE
    while main in references:
        main = f"_{main}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, part in {main: schema, **references}.items():
            file = folder / path
            if not file.resolve().is_relative_to(folder.resolve()):
                raise ValueError("a reference is outside of the folder")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(part.text, encoding="utf-8")
        paths = [f"-I{path}" for path in (folder, *includes)]
        output = folder / "descriptors"
        arguments = [*paths, f"--descriptor_set_out={output}", "--include_imports", main]
        # In a process of its own: in this one, the compiler would write to stderr.
        command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
        if done.returncode != 0:
            raise ValueError("the compiler of Protobuf refuses it")
        content = output.read_bytes()
    return pool_of(descriptor_pb2.FileDescriptorSet.FromString(content).file).FindFileByName(main)


def pool_of(files: Sequence[Any]) -> Any:
    """Return a pool with these files, each after those that it imports. Raises ValueError if they are not complete."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return pool


def message_at(file: Any, indexes: Sequence[int]) -> Any | None:
    """Return the descriptor of a message by the indexes of a record: in the file, then in each outer message."""
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        found = messages[index]
        messages = list(found.nested_types)
    return found
