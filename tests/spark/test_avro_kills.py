"""A pipeline over change events in Avro whose schema changes, with every stage killed: exact, also by an audit."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.avro import encoded, record_of
from helpers.envelopes import change_in_avro, change_schema
from helpers.kafka import STAGES, Pipeline, Sent, Source, differences, read, truth, zipf_records
from helpers.schema_registry import RegistryServer
from skewless.cli.main import main

pytestmark = pytest.mark.thorough

PARTITIONS = 2
RECORDS = 4_000
LATENESS_S = 20
FIRST = record_of("Click", key="string", value="int", time={"type": "long", "logicalType": "timestamp-millis"})
SECOND = record_of("Click", page="string", time=FIRST["fields"][2]["type"], value="long", key=["null", "string"])


@pytest.mark.usefixtures("spark")
def test_pipeline_avro_with_each_stage_killed_is_exact_and_audited_without_a_difference(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    subject = f"{tmp_path.name}-value"
    changes = [change_schema(row) for row in (FIRST, SECOND)]
    schemas = itertools.cycle([(schema, registry_server.register(subject, schema)) for schema in changes])
    operations = itertools.cycle("cur")
    source = Source(broker, PARTITIONS)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        splitter={"format": "avro", "envelope": "debezium"},
        registry={"url": registry_server.url},
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        transport={"commit_interval_s": 0.5, "max_poll_records": 500, "session_timeout_s": 3},
        replicas=dict.fromkeys(STAGES, 1),
    )
    records = list(zipf_records(RECORDS, PARTITIONS, 5))
    sent: list[Sent] = []
    for partition, value in records:
        schema, schema_id = next(schemas)
        change = change_in_avro(next(operations), None, {"page": "/", **json.loads(value or b"")})
        sent.append((partition, encoded(schema, change, schema_id)))
    plain = {at: [value for partition, value in records if partition == at] for at in range(PARTITIONS)}
    tested.run_with_kills(source, sent)
    tested.drain(limit_s=300)
    found = read(broker, source.topic)
    as_json = (replace(record, value=plain[record.partition][record.offset]) for record in found)
    assert differences(tested, truth(as_json, lateness_ms=LATENESS_S * 1000)) == []
    assert tested.count("dead-letters") == 0
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output
    report = json.loads(audit.stdout)
    assert (report["settled"], report["differences"], report["compared"] > 0) == (True, 0, True)
