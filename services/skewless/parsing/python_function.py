"""PythonFunction: a function of the user between the format and the fields, `splitter.python`.

The format decodes the values of a batch of records to documents. The function returns another document for each, or
None for a record without tuples. The settings of key, values, time and conditions then name fields of these documents.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from skewless.errors import ConfigurationError
from skewless.parsing.converters import Problems
from skewless.parsing.envelopes import OpenedRecords
from skewless.parsing.formats.base import Decoder
from skewless.parsing.source_records import RecordColumns, SourceRecords, with_values

log = logging.getLogger(__name__)

SETTING = "splitter.python"
GUIDE = "docs/how-to/python.md"
TRACEBACK_CHARACTERS = 8_000
"""Maximum length of a traceback in a dead letter. Its end is kept, because that has the error."""
Function = Callable[[list[Any]], Iterable[Any]]
_OBJECT = ord("{")


class _ResultError(Exception):
    """The function returned something that is not a document. The message has no payload."""


class PythonFunction:
    """Replaces the values of records by what a function of the user returns for them."""

    def __init__(self, reference: str, decode: Decoder) -> None:
        """Find the function `package.module:function`. Raises ConfigurationError if it does not exist."""
        self._function = find_function(reference)
        self._decode = decode

    def open(self, records: SourceRecords) -> OpenedRecords:
        """Call the function with the documents of the records.

        If it fails, it is called again for each record alone. Those for which it fails again are invalid.
        """
        values, invalid, tracebacks = records.values, Problems(), dict[int, str]()
        rows, documents = self._decode(values, invalid)
        results: list[bytes | None] | None = None
        try:
            results = self._call(documents)
        except MemoryError:
            raise
        except Exception:
            log.debug("%s failed for a batch", SETTING, exc_info=True)
        if results is None:
            results = self._call_each(values, rows, invalid, tracebacks)
        replaced: list[bytes | None] = [None] * len(values)
        for row, result in zip(rows, results, strict=True):
            replaced[row] = result
        skipped = [row for row in rows if replaced[row] is None and row not in invalid]
        return OpenedRecords(with_values(records, replaced), skipped, invalid, tracebacks)

    def unstable(self, values: Sequence[bytes | None]) -> list[int]:
        """Return the indices of the values whose results differ in another call, or in one with this value alone."""
        outcomes = [self._outcomes(values), self._outcomes(values)]
        outcomes.append([self._outcomes([value])[0] for value in values])
        return [row for row, results in enumerate(zip(*outcomes, strict=True)) if len(set(results)) > 1]

    def _outcomes(self, values: Sequence[bytes | None]) -> list[bytes | str | None]:
        """Return for each value the document, or the reason for which it is invalid."""
        opened = self.open(RecordColumns(values, np.zeros(0, np.int64)))
        return [opened.invalid.get(row, value) for row, value in enumerate(opened.records.values)]

    def _call(self, documents: list[Any]) -> list[bytes | None]:
        records = len(documents)  # the function may change the list
        results = list(self._function(documents))
        if len(results) != records:
            raise _ResultError(f"returned {len(results)} results for {records} records")
        return [None if result is None else _encoded(result) for result in results]

    def _call_each(
        self, values: Sequence[bytes | None], rows: Sequence[int], invalid: Problems, tracebacks: dict[int, str]
    ) -> list[bytes | None]:
        """Call the function for each record alone, and add those for which it fails to `invalid`."""
        results: list[bytes | None] = []
        for row in rows:
            # Decoded again, because the call that failed may have changed the document.
            _, document = self._decode([values[row]], {})
            try:
                results += self._call(document)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                results.append(None)
                invalid[row] = f"{SETTING} {_reason(error)}"
                tracebacks[row] = _traceback(error)
        return results


def find_function(reference: str) -> Function:
    """Return the function `package.module:function`.

    Raises ConfigurationError if it does not exist, if its module cannot be imported, or if another one of that name is
    next to another pipeline file of this process.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if f"{name}.".startswith(f"{missing}."):
            raise ConfigurationError(_no_module(missing)) from None
        raise ConfigurationError(
            f"{SETTING}: module {name} imports {missing}, which is not installed here: install it wherever the "
            "splitter runs, such as in the image"
        ) from None
    except Exception as error:  # noqa: BLE001 - a module of the user may raise anything
        raise ConfigurationError(
            f"{SETTING}: module {name} cannot be imported, correct it: {type(error).__name__}: {error}{_place(error)}"
        ) from None
    if other := _other_module(name, module.__file__):
        raise ConfigurationError(
            f"{SETTING}: module {name} is {module.__file__} for another pipeline of this process, and {other}: a "
            "process has one module of a name, so rename one of them, or use a process for each pipeline"
        )
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ConfigurationError(
            f"{SETTING}: {module.__file__ or name} has no function {attribute}, define it there: it takes a list of "
            f"documents and returns one for each ({GUIDE})"
        )
    function: Function = found
    return function


def require_function(reference: str | None) -> None:
    """Raise ConfigurationError if a function is named, and does not exist."""
    if reference is not None:
        find_function(reference)


def add_search_folder(folder: Path) -> None:
    """Let modules be found in a folder, and in the working directory, after all other places."""
    _PIPELINE_FOLDERS.add(folder.absolute())
    for place in (folder.absolute(), Path.cwd()):
        if str(place) not in sys.path:
            sys.path.append(str(place))


_PIPELINE_FOLDERS: set[Path] = set()


def _other_module(name: str, file: str | None) -> Path | None:
    """Return a module of this name next to another pipeline file, if it differs from that in `file`."""
    path = Path(*name.split("."))
    files = {folder / each for folder in _PIPELINE_FOLDERS for each in (path.with_suffix(".py"), path / "__init__.py")}
    if file is None or Path(file) not in files:  # a module of another place is that of all pipelines
        return None
    content = Path(file).read_bytes()
    return next((each for each in sorted(files) if each.is_file() and each.read_bytes() != content), None)


def _no_module(name: str) -> str:
    own = [place for place in sys.path if place and not place.startswith(sys.base_prefix) and "-packages" not in place]
    return (
        f"{SETTING}: there is no module {name}: put it next to the pipeline file, into a folder of PYTHONPATH, or into "
        f"the image, and for Spark see {GUIDE} (searched: the installed packages, {', '.join(own)})"
    )


def _encoded(result: Any) -> bytes:
    """Return a document as JSON. Dates are text in ISO 8601, and numbers of numpy are numbers."""
    try:
        encoded = _encode(result)
    except Exception as error:
        raise _ResultError(f"returned a document that JSON cannot contain: {type(error).__name__}") from error
    if encoded[0] != _OBJECT:
        raise _ResultError(f"returned {type(result).__name__}, should return dict or None for each record")
    return encoded


def _plain(number: Any) -> Any:
    if isinstance(number, np.generic):
        return number.item()
    raise TypeError(f"{type(number).__name__} is not a type of JSON")


_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_plain).encode


def _of_user(error: Exception) -> TracebackType | None:
    """Return the traceback of an error from the user's function on; None if the function returned."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename == __file__:
        found = found.tb_next
    return found


def _place(error: Exception) -> str:
    """Return the last line of the traceback, such as ` (shop.py:12)`; empty without a traceback of the user."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    frames = [frame for frame in frames if frame.filename != __file__]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _reason(error: Exception) -> str:
    """Return what went wrong, without the message of the error: it may contain payload."""
    if isinstance(error, _ResultError):
        return str(error)
    found = _of_user(error)
    where = f" ({Path(found.tb_frame.f_code.co_filename).name}:{found.tb_lineno})" if found else ""
    return f"raised {type(error).__name__}{where}"


def _traceback(error: Exception) -> str:
    """Return the end of a traceback, as UTF-8 can contain it."""
    text = "".join(traceback.format_exception(type(error), error, _of_user(error)))
    return text[-TRACEBACK_CHARACTERS:].encode(errors="backslashreplace").decode()
