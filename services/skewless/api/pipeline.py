"""Pipeline: the settings of a pipeline, from a file or from arguments, checked when it is created."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from skewless.algorithms.aggregates.elements import Element
from skewless.api import arguments
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, unknown
from skewless.lab.inspection.pipeline_file import pipeline_name

PARAMETERS = ("source", "key", "time", "values", "window", "aggregates", "format", "name", "brokers")
SECTIONS = tuple(name for name in PipelineSettings.model_fields if name not in PARAMETERS)


class Pipeline:
    """A pipeline that counts and aggregates the records of Kafka topics per key and window.

    `source` is a topic, or a list of topics. `key` is the field of the key, a list of fields for a composite key, or
    None for the key of the Kafka record. `time` is the field of the event time in ms, or None for the timestamp of the
    Kafka record. `window` is a duration such as "1m", or a number of seconds. `aggregates` are elements such as
    `sum("amount")`. `values` maps the names of their values to fields; without an entry, a value is the field with its
    name. `format` is the format of the records. `brokers` is `host:port`, by default that of $KAFKA_BOOTSTRAP_SERVERS.
    `name` is by default made from the topic.

    `source`, `key`, `time`, `window`, `format` and each of the `values` may also be a mapping: the group of settings
    with all its options, as in `time={"field": "at", "unit": "iso8601"}`. `sections` are other sections of a pipeline
    file, such as `router={"workers": 8}`. Environment variables apply as to a file; arguments override them.

    Raises ConfigurationError with all problems, each with its argument.
    """

    def __init__(  # noqa: PLR0913 - passed by name
        self,
        source: str | Sequence[str] | Mapping[str, Any],
        *,
        key: str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None = None,
        time: str | Mapping[str, Any] | None = None,
        values: Mapping[str, str | Mapping[str, Any]] | None = None,
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
        named_values = arguments.values_of(aggregates or (), values or {})
        parameters = {
            "source": source,
            "key": {"from": "record_key"} if key is None and not has_key else key,
            "time": time,
            "values": named_values or None,
            "window": window,
            "aggregates": None if aggregates is None else list(aggregates),
            "format": format,
            "name": pipeline_name(source) if name is None and isinstance(source, str) else name,
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
        pipeline = cls.__new__(cls)
        pipeline._set(Path(path), arguments.settings_of({}, overrides))  # noqa: SLF001 - of this class
        return pipeline

    def _set(self, file: Path | None, given: Mapping[arguments.Path, Any]) -> None:
        environ = os.environ | arguments.variables_of(given)
        try:
            self._settings = loader.load(file, environ)
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

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r})"
