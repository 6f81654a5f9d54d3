"""Pipeline: the settings of a pipeline, from a file or from arguments, checked when it is created."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skewless.algorithms.aggregates.elements import Element
from skewless.api import arguments
from skewless.api.results import Result, Results, result_reader
from skewless.api.run import PipelineRun, logs_folder
from skewless.client import whole
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, unknown
from skewless.lab.inspection.pipeline_file import pipeline_name
from skewless.operations import results as stored_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skewless.api.batch import Batch

PARAMETERS = ("source", "key", "time", "values", "window", "aggregates", "format", "name", "brokers")
SECTIONS = tuple(name for name in PipelineSettings.model_fields if name not in PARAMETERS)


class Pipeline:
    """A pipeline that counts and aggregates the records of Kafka topics per key and window.

    `source` is a topic, or a list of topics. `key` is the field of the key, a list of fields for a composite key, or
    None for the key of the Kafka record. `time` is the field of the event time in ms, or None for the timestamp of the
    Kafka record. `window` is a duration such as "1m", or a number of seconds. `aggregates` are elements such as
    `sum("amount")`. `values` maps the names of their values to fields; without an entry, a value is the field with its
    name. A field may be the number of a column, from 0 on. `format` is the format of the records. `brokers` is
    `host:port`, by default that of $KAFKA_BOOTSTRAP_SERVERS. `name` is by default made from the topic.

    `source`, `key`, `time`, `window`, `format` and each of the `values` may also be a mapping: the group of settings
    with all its options, as in `time={"field": "at", "unit": "iso8601"}`. `sections` are other sections of a pipeline
    file, such as `router={"workers": 8}`. Environment variables apply as to a file; arguments override them.

    Raises ConfigurationError with all problems, each with its argument.
    """

    def __init__(  # noqa: PLR0913 - passed by name
        self,
        source: str | Sequence[str] | Mapping[str, Any],
        *,
        key: str | int | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None = None,
        time: str | int | Mapping[str, Any] | None = None,
        values: Mapping[str, str | int | Mapping[str, Any]] | None = None,
        window: str | float | timedelta | Mapping[str, Any] | None = None,
        aggregates: Sequence[Element] | None = None,
        format: str | Mapping[str, Any] | None = None,  # noqa: A002 - the name of the setting
        name: str | None = None,
        brokers: str | Sequence[str] | None = None,
        **sections: Mapping[str, Any],
    ) -> None:
        if excess := [section for section in sections if section not in SECTIONS]:
            known = (*PARAMETERS, *SECTIONS)
            raise ConfigurationError(*(unknown("argument", section, known) for section in excess))
        splitter = sections.get("splitter")
        has_key = isinstance(splitter, Mapping) and "key" in splitter
        elements = None if aggregates is None else arguments.elements_of(aggregates)
        named_values = arguments.values_of(elements or (), values or {}, splitter)
        topic = source.get("topic") if isinstance(source, Mapping) else source
        parameters = {
            "source": source,
            "key": {"from": "record_key"} if key is None and not has_key else key,
            "time": time,
            "values": named_values or None,
            "window": window,
            "aggregates": elements,
            "format": format,
            "name": pipeline_name(topic) if name is None and isinstance(topic, str) else name,
            "brokers": brokers,
        }
        given = {parameter: value for parameter, value in parameters.items() if value is not None}
        self._set(None, arguments.settings_of(given, sections))

    @classmethod
    def load(cls, path: str | Path = "pipeline.yaml", **overrides: Any) -> Self:
        """Load a pipeline file. The environment overrides the file, as with the commands.

        `overrides` are sections or settings that override both: `load("pipeline.yaml", router={"workers": 8})` is
        `--set router.workers=8`.

        Raises ConfigurationError with all problems, each with its file, variable or argument.
        """
        if not isinstance(path, str | os.PathLike):
            raise ConfigurationError(f"path: {path!r} is not the path of a file")
        pipeline = cls.__new__(cls)
        pipeline._set(Path(path), arguments.settings_of({}, overrides))  # noqa: SLF001 - of this class
        return pipeline

    def _set(self, file: Path | None, given: Mapping[arguments.Path, Any]) -> None:
        self._file = file and file.absolute()
        self._variables = arguments.variables_of(given)
        try:
            self._settings = loader.load(file, os.environ | self._variables)
        except ConfigurationError as error:
            raise ConfigurationError(*(arguments.by_argument(problem, given) for problem in error.problems)) from None

    @property
    def name(self) -> str:
        """Name of the pipeline, with which its topics and consumer groups begin."""
        return self._settings.name

    @property
    def settings(self) -> PipelineSettings:
        """All settings, as docs/reference/settings.md lists them: `pipeline.settings.router.workers`."""
        return self._settings

    def to_yaml(self) -> str:
        """Return the pipeline file with the settings that are set. Secrets are masked."""
        return loader.dump(self._settings, only_set=True)

    def up(self, *, log_dir: str | Path | None = None, take_over: bool = False) -> PipelineRun:
        """Return the run of all stages on this machine, which a `with` block starts and ends.

        The topics are created. Logs are written to `log_dir`, by default a temporary folder. With `take_over`, the run
        replaces processes of the pipeline that run already; otherwise it then raises FencedError.

        Raises ConfigurationError if the file or the environment has other settings than when the pipeline was loaded,
        or if `log_dir` cannot be written to.
        """
        file = self._file
        # Compared as data: two models may differ in what they have already warned of.
        if file is not None and (
            loader.load(file, os.environ | self._variables).model_dump() != self._settings.model_dump()
        ):
            raise ConfigurationError(f"{file}: it, or the environment, has changed since it was loaded: load it again")
        logs = logs_folder(self.name, log_dir)
        if file is None:  # a file in the current folder is not that of this pipeline
            file = logs.absolute() / f"{self.name}.settings.yaml"  # the folder may have a pipeline file of the user
            file.write_text(self.to_yaml(), encoding="utf-8")
        return PipelineRun(self._settings, file, self._variables, logs, take_over=take_over)

    def results(
        self, window: str = "last", *, key: str | None = None, top: int | None = None, by: str | None = None
    ) -> Results:
        """Return committed results, the newest revision of each key and window, as `skewless results` prints them.

        `window` is `last` (the last closed one, or the newest one while none is), `open` (those after it), `all`, or a
        time within a window in ISO 8601.
        `top` is the number of the largest results of each window, ordered by the aggregate `by`, by default the first.
        They are those of the table of `sink`, if the pipeline has one, else those of its topic.

        Raises ConfigurationError for an unknown window or aggregate, and CheckFailedError if there are no results.
        """
        _require_key(key)
        limit = None if top is None else whole("top", top)
        query = stored_results.query_of(self._settings, window=window, key=key, top=limit, by=by)
        read, fields = self._result_reader(), self._settings.results
        found = [read(record) for record in stored_results.read(self._settings, query, _warn)]
        return Results(found, fields, self._settings.splitter.key.parts)

    def follow(self, *, key: str | None = None) -> Iterator[Result]:
        """Return the results that are committed from now on, of one key or of all, as they arrive, without an end.

        Raises ConfigurationError if the pipeline only joins.
        """
        _require_key(key)
        _ = self._settings.aggregated  # an error if the pipeline only joins
        read = self._result_reader()
        batches = stored_results.topic.later(self._settings, key, _warn)
        return (read(result) for batch in batches for result in batch)

    def batch(self, spark: SparkSession, *paths: str | Path) -> Batch:
        """Compute the results of recorded data with Spark: of files with one record per line, or of the source topics.

        Raises ConfigurationError if a path does not exist, files lack what the pipeline reads, the pipeline only joins,
        or PySpark is missing.
        """
        from skewless.api import batch

        _ = self._settings.aggregated  # an error if the pipeline only joins
        return batch.batch(spark, self._settings, paths)

    def _result_reader(self) -> Callable[[Mapping[str, Any]], Result]:
        return result_reader(self._settings.results, self._settings.splitter.key.parts)

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r})"


def _require_key(key: object) -> None:
    """Raise ConfigurationError if a key is not text. A number would equal none of the keys."""
    if not isinstance(key, str | None):
        raise ConfigurationError(f"key: {key!r} is not text: keys are text, such as '5'")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
