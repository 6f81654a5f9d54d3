"""Compiles the text of a Protobuf schema to the descriptors of its messages."""

from __future__ import annotations

import base64
import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from skewless.errors import ConfigurationError, how_to_add
from skewless.schema_registry.protobuf_files import built_in_files
from skewless.schema_registry.schema import Schema

FILE = "schema.proto"
MAP_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
"""Marks the message of a map's entries in the text that older versions of Confluent's registry write."""
MARK = 521_893_407
"""Number of a field that such a message reserves instead, because the compiler refuses the option. Hardly in use."""

NAME_ERRORS = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


def compile_text(schema: Schema) -> Any:
    """Return the descriptor of a file with this text, or with this descriptor in Base64, as some clients register it.

    Raises ValueError if it is not valid.
    """
    try:
        import google.type
        import grpc_tools
        from google.protobuf import descriptor_pb2

        confluent = built_in_files()
    except ImportError as error:
        raise ConfigurationError(
            f"format: the compiler of Protobuf cannot be imported ({error}): {how_to_add('registry')}"
        ) from None
    includes = [Path(grpc_tools.__path__[0], "_proto"), *(Path(folder).parents[1] for folder in google.type.__path__)]
    references = schema.all_references()
    main = FILE
    while main in references:
        main = f"_{main}"
    registered = descriptor_pb2.FileDescriptorSet()
    built_in = descriptor_pb2.FileDescriptorSet()
    for descriptor in confluent:
        descriptor.CopyToProto(built_in.file.add())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, part in {main: schema, **references}.items():
            if not (folder / path).resolve().is_relative_to(folder.resolve()):
                raise ValueError("a reference is outside of the folder")
            if (descriptor := _descriptor(path, part.text)) is not None:
                registered.file.append(descriptor)
            else:
                _write(folder / path, MAP_ENTRY.sub(f"reserved {MARK};", part.text))
        files = _compiled(main, (registered, built_in), (folder, *includes))
    entries = [entry for file in files.file for entry in _marked(file.message_type)]
    for entry in entries:
        del entry.reserved_range[:]
        entry.options.map_entry = True
    if entries:
        files = _compiled(main, (files,))  # checks them
    return pool_of(files.file).FindFileByName(main)


def _write(file: Path, text: str) -> None:
    """Write a file and its folders. Raises ValueError if no file can have its name next to those that are there."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno not in NAME_ERRORS:
            raise
        raise ValueError("no file can have the name of a reference") from None


def _descriptor(path: str, text: str) -> Any | None:
    """Return the descriptor of a file from Base64. None: it is the text of the file."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        descriptor = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (ValueError, DecodeError):
        return None
    descriptor.name = path
    return descriptor


def _compiled(main: str, known: Sequence[Any], includes: Iterable[Path] = ()) -> Any:
    """Return the descriptors of a file and of those that it imports. Raises ValueError if the compiler refuses it.

    A file is searched for in the folders, then in the known descriptors.
    """
    from google.protobuf import descriptor_pb2

    with tempfile.TemporaryDirectory() as name:
        inputs, output = [Path(name, f"known{number}") for number in range(len(known))], Path(name, "descriptors")
        for file, descriptors in zip(inputs, known, strict=True):
            file.write_bytes(descriptors.SerializeToString())
        arguments = [*(f"-I{path}" for path in includes), f"--descriptor_set_in={os.pathsep.join(map(str, inputs))}"]
        arguments += [f"--descriptor_set_out={output}", "--include_imports", main]
        # In a process of its own: in this one, the compiler would write to stderr.
        command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
        if done.returncode != 0:
            raise ValueError("the compiler of Protobuf refuses it")
        return descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())


def _marked(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield the messages with the mark, also of those in messages."""
    for message in messages:
        if any(reserved.start == MARK for reserved in message.reserved_range):
            yield message
        yield from _marked(message.nested_type)


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
