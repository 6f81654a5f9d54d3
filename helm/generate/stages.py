"""Generates `files/topology.yaml`: stages, topics, ACLs and defaults, from the topology and the settings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, SecretStr

from dashboards.generate.files import dashboards
from skewless import topology
from skewless.config import acls
from skewless.config.loader import PREFIX
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import MAX_SEGMENT_MS, results_retention, topic_spec
from skewless.smoke_test.acls import rights as rights_of_smoke_test
from skewless.stages.enricher.settings import EnrichSettings

TABLES = "tables"
"""What an ACL for the topics of all tables names."""
USER_TOPICS = {name.upper(): name for name in (*topology.USER_TOPICS, TABLES)}
"""Placeholder for each topic of the user -> its name in the topology."""
PIPELINE = "x"
"""Placeholder for the name of the pipeline."""
RETENTION = "retention.ms"
TEST = "test"
"""Role of the tests of `helm test` that only read."""
SMOKE_TEST = "smoke-test"
"""Role of the test that sends records."""
ALTERNATIVES: Sequence[tuple[topology.Condition, topology.Condition, Mapping[str, Mapping[str, Any]]]] = (
    (
        topology.Condition(topology.REPARTITIONED.path, ("never",)),
        topology.REPARTITIONED,
        {"join": {"repartition": "always"}},
    ),
    (
        topology.Condition("mirror.topic", ("aggregates",)),
        topology.Condition("mirror.topic", ("partials",)),
        {"mirror": {"kafka": {"bootstrap_servers": "other:9092"}, "topic": "partials"}},
    ),
    (topology.AGGREGATION, topology.RANKED, {"aggregator": {"top": {"n": 1, "by": "count"}}}),
)
"""Condition of the example, another condition, and the sections with which it holds, where topics of a stage differ."""
COLUMNS = {"tuples", "partials"}
"""Record types with columns of many rows."""
LAG_OF_COLUMNS, LAG_OF_ROWS = 100, 10_000
"""Lag in records per partition for which KEDA adds a process, for topics with such records and for others.

At low rates, too, a process of the previous stage writes 5 to 18 records and markers of transactions per second to each
partition of a topic with columns. 100 of them are 6 to 20 s.
"""


def document() -> dict[str, Any]:
    """Return the data that the templates iterate over."""
    return {
        "defaults": _defaults(_example()),
        "stages": [_stage(stage) for stage in topology.STAGES],
        "topics": list(_topics(_example())),
        "acls": _acls(),
        "dashboards": {each.uid: list(each.stages) for each in dashboards()},
    }


def _example(**sections: Mapping[str, Any]) -> PipelineSettings:
    sides = {side: {"topic": side.upper(), "id": {"field": "id"}} for side in ("left", "right")}
    document: dict[str, Any] = {"name": PIPELINE, "source": {"topic": "SOURCE"}, "join": {**sides, "apart_s": 1}}
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section}
    table = {"topic": TABLES.upper(), "fields": {"field": "field"}}
    # No pipeline joins and enriches, but this one stands for all pipelines.
    enrich = EnrichSettings.model_validate({"topic": "EVENTS", "tables": [table]})
    return PipelineSettings.model_validate(document).model_copy(update={"enrich": enrich})


def _defaults(settings: PipelineSettings) -> dict[str, Any]:
    """Return the defaults of the settings that templates use when the values do not set them."""
    return {
        "guarantee": settings.transport.guarantee,
        "workers": settings.router.workers,
        "max_workers": settings.worker_input.partitions,
        "aggregator_partitions": settings.topics.aggregator_partitions,
        "internal_retention_s": settings.topics.internal_retention_s,
        "max_segment_ms": MAX_SEGMENT_MS,
    }


def _stage(stage: topology.Stage) -> dict[str, Any]:
    """Return a stage: its condition, its inputs, the partitions that limit its processes, and its secrets."""
    # A process of the join has the same partition numbers of all topics, so the topic with most partitions limits the
    # number of processes.
    kinds = dict.fromkeys(map(_partitions_of, stage.inputs))
    return {
        "name": stage.name,
        **_needs([stage.needs] if stage.needs else []),
        "inputs": list(stage.inputs),
        **_other_inputs(stage),
        "partitions": ["one"] if stage.singleton else list(kinds),
        "lagPerPartition": LAG_OF_COLUMNS if _reads_columns(stage) else LAG_OF_ROWS,
        **({"readsResults": True} if stage.reads_results else {}),
        "credentials": [
            {
                "env": f"{PREFIX}{'__'.join(path).upper()}",
                "key": "-".join(path[1:]).replace("_", "-"),
                **({"optional": True} if _is_optional(path) else {}),
            }
            for path in credentials(stage.section)
        ],
    }


def _partitions_of(name: str) -> str:
    """Return what determines the number of partitions of a topic."""
    # A setting may give the topics that have as many partitions as `tuples` another number than the source topic has.
    kind = topology.partitions_of(name)
    return "tuples" if kind == "source" and name not in topology.USER_TOPICS else kind


def _reads_columns(stage: topology.Stage) -> bool:
    own = (name for name in stage.all_inputs if name not in topology.USER_TOPICS)
    return any(topology.topic(name).record in COLUMNS for name in own)


def _other_inputs(stage: topology.Stage) -> dict[str, Any]:
    if stage.alternative_inputs is None:
        return {}
    condition, inputs = stage.alternative_inputs
    return {"otherInputs": {**_needs([condition]), "inputs": list(inputs)}}


def _needs(conditions: Iterable[topology.Condition]) -> dict[str, Any]:
    """Return the entry with the conditions of which one must hold; nothing if there are none."""
    needs = [{"path": list(_path(condition)), "values": list(condition.values)} for condition in conditions]
    return {"needs": needs} if needs else {}


def _path(condition: topology.Condition) -> Iterator[dict[str, Any]]:
    """Yield the names on the path of a condition with their defaults, which the values of the chart need not repeat."""
    models: list[type[BaseModel]] = [PipelineSettings]
    for name in condition.path.split("."):
        (field,) = (model.model_fields[name] for model in models)
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        yield {"name": name, "default": {} if isinstance(default, BaseModel) else default}
        models = _models(field.annotation)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections of settings that a setting may be: one, none, or several."""
    types = (annotation, *get_args(annotation))
    return [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]


def credentials(section: str) -> list[tuple[str, ...]]:
    """Return the paths of the secrets in a section of the settings."""
    models = _models(PipelineSettings.model_fields[section].annotation)
    return [(section, *path) for model in models for path in secrets(model)]


def _is_optional(path: tuple[str, ...]) -> bool:
    """Return whether a setting or a section around it, within the section of the stage, may be null."""
    models = _models(PipelineSettings.model_fields[path[0]].annotation)
    for name in path[1:]:
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        if all(type(None) in get_args(field.annotation) for field in fields):
            return True
        models = [model for field in fields for model in _models(field.annotation)]
    return False


def secrets(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all secrets in a section of the settings, including nested sections."""
    for name, field in model.model_fields.items():
        if SecretStr in (field.annotation, *get_args(field.annotation)):
            yield (name,)
        for section in _models(field.annotation):
            yield from ((name, *path) for path in secrets(section))


def _topics(settings: PipelineSettings) -> Iterator[dict[str, Any]]:
    """Yield the topics, without the retentions that the template takes from the values: of internal topics, results."""
    for topic in topology.TOPICS:
        spec = topic_spec(topic, settings, source_partitions=1)
        internal_retention = topic.cleanup == "delete" and not topic.public
        config = {name: value for name, value in spec.options.items() if not (internal_retention and name == RETENTION)}
        yield {
            "name": topic.name,
            **_needs(topology.topic_needs(topic.name)),
            "partitions": _partitions_of(topic.name),
            "internalRetention": internal_retention,
            "resultsRetention": bool(results_retention(topic, _with_results_retention(settings))),
            "config": config,
        }


def _with_results_retention(settings: PipelineSettings) -> PipelineSettings:
    topics = settings.topics.model_copy(update={"results_retention_s": 60.0})
    return settings.model_copy(update={"topics": topics})


def _acls() -> dict[str, list[dict[str, Any]]]:
    """Return role -> ACLs, for the stages and the tests. Those that only some pipelines need have a condition."""
    entries = {stage.name: _conditional(functools.partial(acls.acls_of_stage, stage)) for stage in topology.STAGES}
    entries[TEST] = _conditional(lambda settings: acls.acls_for(settings)[acls.STATUS])
    entries[SMOKE_TEST] = list(map(_acl, rights_of_smoke_test(_example())))
    return entries


def _conditional(rights: Callable[[PipelineSettings], Iterable[acls.AclBinding]]) -> list[dict[str, Any]]:
    """Return ACLs by the settings. Those that differ by the value of a setting have a condition."""
    plain = list(map(_acl, rights(_example())))
    entries = [dict(acl) for acl in plain]
    for default, condition, sections in ALTERNATIVES:
        other = list(map(_acl, rights(_example(**sections))))
        for entry, acl in zip(entries, plain, strict=False):
            if acl not in other:
                entry.update(_needs([default]))
        entries += [{**acl, **_needs([condition])} for acl in other if acl not in plain]
    return entries


def _acl(binding: acls.AclBinding) -> dict[str, Any]:
    """Return an ACL in Strimzi's terms, with names relative to the name of the pipeline."""
    user_topic = USER_TOPICS.get(binding.name, "")
    return {
        "type": "transactionalId" if binding.resource == "transactional id" else binding.resource,
        "userTopic": user_topic,
        "suffix": "" if user_topic else binding.name.removeprefix(PIPELINE),
        "patternType": "prefix" if binding.prefixed else "literal",
        "operations": list(binding.operations),
    }
