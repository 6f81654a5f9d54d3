"""Command blocks of the README, the chart's page, the tutorial and the how-to pages: who runs each one.

The blocks that no other test runs, and that can run on one machine in seconds, are run here as they are written.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from helpers.docs_blocks import ROOT, Block, blocks
from helpers.followed_page import Reader
from helpers.kafka import START_MS, create_topics
from helpers.terminal import terminal
from skewless.cli.main import main
from skewless.lab.datasets import line_streams

HERE = "here"
CLUSTER = "not run: needs a Kubernetes cluster; `make test-kubernetes` installs the chart in one"
ENGINE = "not run: needs a container engine"
PACKAGES = "not run: needs packages from a registry"
LONG = "not run: takes a minute or more"
PAGES = (
    ROOT / "README.md",
    ROOT / "helm" / "skewless" / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
)
BLOCKS = [block for page in PAGES for block in blocks(page) if block.language == "sh"]
RUN_BY: Mapping[str, Mapping[str, str]] = {
    "README.md": {
        "make demo": "tests/acceptance/test_demo.py",
        "make test": "not run: it runs tests",
        "make setup": HERE,
        "helm install": CLUSTER,
        "skewless simulate": HERE,
        "skewless audit": "tests/spark/test_audit.py, tests/spark/test_evaluate.py",
        "skewless status": "tests/integration/test_status.py, tests/integration/test_top.py",
    },
    "helm/skewless/README.md": {"helm install clicks": CLUSTER, "helm install trial": CLUSTER},
    "docs/tutorial.md": {
        "make setup": "not run: sets up a clone, as CI does",
        "kcat": "not run: its output is that of the block before it",
        "": "tests/acceptance/test_tutorial.py",
    },
    "docs/how-to/aggregate-locally.md": {"skewless simulate": HERE},
    "docs/how-to/audit.md": {
        "skewless audit -f pipeline.yaml\n": "tests/spark/test_audit.py",
        "skewless audit -f pipeline.yaml --since": "tests/spark/test_audit.py",
    },
    "docs/how-to/backfill-with-spark.md": {
        "skewless batch -f pipeline.yaml --out": "tests/spark/test_batch.py",
        "skewless batch -f pipeline.yaml --starting-offsets": "tests/spark/test_batch.py",
        "skewless batch -f pipeline.yaml --input archive.jsonl": PACKAGES,
        "skewless produce lines": HERE,
    },
    "docs/how-to/change-windows.md": {"skewless": "tests/acceptance/test_change_windows.py"},
    "docs/how-to/change-workers.md": {"skewless run": "tests/acceptance/test_rescaling.py"},
    "docs/how-to/choose-aggregates.md": {"skewless config": HERE},
    "docs/how-to/rank-keys.md": {"skewless results": "tests/spark/test_ranks.py"},
    "docs/how-to/compare-groupings.md": {
        "tr -cs": HERE,
        "skewless simulate": HERE,
    },
    "docs/how-to/add-fields.md": {"": "tests/spark/test_add_fields_page.py"},
    "docs/how-to/copy-to-another-cluster.md": {"": "tests/integration/test_mirror.py"},
    "docs/how-to/dashboards.md": {"skewless demo": "tests/acceptance/test_demo.py"},
    "docs/how-to/evaluate.md": {
        "skewless evaluate": "tests/spark/test_evaluate.py",
        "skewless evaluate -f pipeline.yaml --master": "tests/spark/test_cluster.py",
    },
    "docs/how-to/images.md": {"": ENGINE},
    "docs/how-to/inspect-a-topic.md": {
        "skewless inspect clicks --bootstrap-servers": HERE,
        "skewless inspect clicks --fail-if": HERE,
        "skewless init": HERE,
    },
    "docs/how-to/join.md": {
        "skewless batch": "tests/spark/test_join.py",
        "": "tests/acceptance/test_join_page.py",
    },
    "docs/how-to/kubernetes.md": {"": CLUSTER},
    "docs/how-to/notebook.md": {"": "tests/spark/test_notebook.py"},
    "docs/how-to/one-process.md": {"": "tests/integration/test_one_process.py"},
    "docs/how-to/own-consumers.md": {
        "skewless up": "tests/integration/test_reader_examples.py",
    },
    "docs/how-to/plan.md": {
        "skewless plan": HERE,
        "skewless plan -f pipeline.yaml --sample all --out plan --master": "tests/spark/test_cluster.py",
    },
    "docs/how-to/produce-data-sets.md": {"": LONG},
    "docs/how-to/proxies-and-mirrors.md": {
        "export": "not run: only sets a variable",
        "SKEWLESS_CACHE": "not run: downloads all jars, as `make setup` does",
    },
    "docs/how-to/python.md": {"": "tests/integration/test_python_page.py"},
    "docs/how-to/read-results.md": {
        "skewless results": HERE,
        "skewless topics asyncapi": HERE,
        "#!/bin/sh": "tests/integration/test_reader_examples.py",
    },
    "docs/how-to/read-any-topic.md": {"skewless dead-letters list": HERE},
    "docs/how-to/schema-registry.md": {"": "tests/integration/registry/test_registry_page.py"},
    "docs/how-to/secured-cluster.md": {
        "read -rs": "tests/integration/test_commands.py",
        "skewless topics acls -f pipeline.yaml\n": "tests/unit/config/test_acls.py",
        "skewless topics acls -f pipeline.yaml --format": HERE,
        "skewless topics acls -f pipeline.yaml --principal": HERE,
    },
    "docs/how-to/simulate-cost.md": {"": LONG},
    "docs/how-to/size-topics.md": {"skewless topics apply": HERE},
    "docs/how-to/spark-cluster.md": {"": "tests/spark/test_cluster.py", "docker compose": ENGINE},
    "docs/how-to/sql.md": {
        "": "tests/acceptance/test_sql_page.py",
    },
    "docs/how-to/start-again.md": {
        "skewless dead-letters": HERE,
        "skewless reset -f pipeline.yaml --to-start": HERE,
        "skewless reset -f pipeline.yaml --delete": HERE,
    },
    "docs/how-to/stream-on-spark.md": {
        "skewless stream -f pipeline.yaml --hand-back": "tests/acceptance/test_stream_handover.py",
        "skewless stream -f pipeline.yaml --master spark": "tests/spark/test_cluster.py",
        "": "tests/acceptance/test_stream_page.py",
    },
    "docs/how-to/upgrade.md": {
        "skewless config check -f pipeline.yaml\n": HERE,
        "skewless topics apply": HERE,
    },
    "docs/how-to/use-groupings-in-a-producer.md": {
        "python": "tests/integration/test_producer_example.py",
        "mvn": "tests/integration/test_java_partitioner.py",
        "java": "tests/integration/test_java_partitioner.py",
    },
    "docs/how-to/watch.md": {
        "skewless status": HERE,
        "skewless top": "tests/integration/test_top.py",
        "export SKEWLESS__METRICS__PORT": "tests/acceptance/test_watch.py",
        "curl": "tests/acceptance/test_watch.py",
    },
}
"""Page -> first characters of a block -> the tests that run it, or why none does. The longest text applies."""
SETUP = ("make setup", ". .venv/bin/activate", "export KAFKA_BOOTSTRAP_SERVERS=")
"""First words of lines that a test has done already."""
ADDRESS = "localhost:9092"
"""Address of a broker in the pages."""
CHECKS = {"choose-aggregates": "skewless config", "upgrade": "skewless config check -f pipeline.yaml\n"}
"""Pages of which `skewless config check` checks the pipeline, and the block with this command."""
WAIT_S = 60.0
SOURCES = 60
"""Files of Python's standard library, which is the data set of the README."""


def key_of(block: Block) -> str | None:
    return max((key for key in RUN_BY.get(block.page, {}) if block.text.startswith(key)), key=len, default=None)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_command_block_of_a_page_is_run_by_a_test_or_has_a_reason(block: Block) -> None:
    key = key_of(block)
    assert key is not None, f"{block}: add the block to RUN_BY"
    by = RUN_BY[block.page][key]
    if by.startswith("tests/"):
        assert [file for file in by.split(", ") if not (ROOT / file).is_file()] == []


def test_command_blocks_of_the_table_exist() -> None:
    listed = {(page, key) for page, keys in RUN_BY.items() for key in keys}
    assert listed == {(block.page, key_of(block)) for block in BLOCKS}


@dataclass(frozen=True)
class Pages:
    """Runs blocks of pages, each in the folder of its reader, whose programs and broker it has."""

    folder: Path
    broker: str
    monkeypatch: pytest.MonkeyPatch
    reader: Reader
    done: set[str]

    def enter(self, name: str, pipeline: str | None = None) -> None:
        """Change to the new folder of a reader, which has this pipeline file."""
        folder = self.folder / name
        folder.mkdir()
        self.monkeypatch.chdir(folder)
        if pipeline is not None:
            (folder / "pipeline.yaml").write_text(pipeline)

    def run(self, page: str, key: str, code: int = 0) -> str:
        """Run the commands of a block, of which the last ends with this code. Returns what they print."""
        return self.reader.run(self._commands(page, key), code, errors=True)

    def answer(self, page: str, key: str, last: bytes) -> None:
        """Run the commands of a block in a terminal, and answer their questions with yes. All succeed.

        `last` is part of the last line that they print.
        """
        for line in self._commands(page, key).splitlines():
            with terminal(shlex.split(line)[1:]) as shown:
                if "--dry-run" not in line:
                    shown.read_until(b"[y/N]")
                    os.write(shown.descriptor, b"y\n")
                    shown.read_until(last)
                assert shown.process.wait(WAIT_S) == 0, f"{line}: {shown.output!r}"

    def _commands(self, page: str, key: str) -> str:
        """Return the commands of a block without those that a test has done already."""
        (block,) = (block for block in BLOCKS if (block.page, key_of(block)) == (page, key))
        self.done.add(str(block))
        lines = [line for line in block.text.splitlines() if not line.startswith(SETUP)]
        return "\n".join(lines).replace(ADDRESS, self.broker)


@pytest.fixture
def pages(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pages:
    reader = Reader(tmp_path, broker, monkeypatch)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    # The whole library has millions of words. Another test has it.
    few = line_streams.sources()[:SOURCES]
    monkeypatch.setattr(line_streams, "sources", lambda: few)
    return Pages(tmp_path, broker, monkeypatch, reader, set())


def pipeline_of(page: str) -> str:
    """Return the first pipeline file of a page."""
    return next(block.text for block in blocks(ROOT / page) if block.language == "yaml")


def send_sales(broker: str) -> None:
    """Create the topics of the page about invalid records. Record 4711 of partition 3 differs."""
    create_topics(broker, {"sales": 4, "sales-to-repair": 4})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(4_712):
        producer.produce("sales", b'{"user": "a"}' if number < 4_711 else b'{"name": "a"}', partition=3)
    assert producer.flush(60) == 0


def send_dead_letter(broker: str) -> None:
    """Write the dead letter of this record as the splitter does."""
    origin = {"topic": "sales", "partition": "3", "offset": "4711", "reason": "longer than 262144 bytes"}
    headers = [(f"__skewless.errors.{name}", text.encode()) for name, text in origin.items()]
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    producer.produce("shop.dead-letters", b'{"name": "a"}', partition=3, headers=headers)
    assert producer.flush(60) == 0


def send_orders(broker: str) -> None:
    create_topics(broker, {"orders": 2})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(1_000):
        producer.produce("orders", b"{}", f"customer-{number % 40}", partition=number % 2)
    assert producer.flush(60) == 0


def check_sizes(pages: Pages) -> None:
    create_topics(pages.broker, {"pageviews.raw": 4})
    pages.enter("pageviews", pipeline_of("docs/how-to/size-topics.md"))
    sizes = pages.run("docs/how-to/size-topics.md", "skewless topics apply")
    assert "would create pageviews.tuples  4 partitions" in sizes
    assert "At 10,000 records/s with 50,000 keys of 20 bytes" in sizes


def check_plan(pages: Pages) -> None:
    send_orders(pages.broker)
    assert "Recommended: " in pages.run("docs/how-to/plan.md", "skewless plan")


def check_history(pages: Pages) -> None:
    page = "docs/how-to/backfill-with-spark.md"
    pages.enter("march")
    Path("history.yaml").write_text(next(block.text for block in blocks(ROOT / page) if block.name == "history.yaml"))
    Path("march.jsonl").write_text('{"customer": "ada", "price": 0.5, "at": "2026-03-01T10:00:00Z"}\n' * 1_000)
    assert pages.run(page, "skewless produce lines").count("finished, exit code 0") == 5
    assert Path("march.csv").read_text().splitlines()[1:] == ["1772359200000,1772359260000,ada,1000,500.0,0"]


def lines_of_keys(count: int) -> str:
    return "".join(f"{START_MS + number}\tk{number % 7 if number % 3 else 0}\n" for number in range(count))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_command_blocks_as_written_do_what_their_pages_say(pages: Pages) -> None:
    pages.enter("words", pipeline_of("README.md"))
    assert pages.run("README.md", "make setup").count("finished, exit code 0") == 5
    assert "windows  all are closed" in pages.run("docs/how-to/watch.md", "skewless status")
    assert "words.aggregates" in pages.run("docs/how-to/read-results.md", "skewless topics asyncapi")

    pages.enter("clicks")
    topic = ["produce", "zipf", "--topic", "clicks", "--partitions", "4", "--records", "20000", "-q"]
    assert CliRunner().invoke(main, topic).exit_code == 0
    page = "docs/how-to/inspect-a-topic.md"
    assert "Hottest keys of key" in pages.run(page, "skewless inspect clicks --bootstrap-servers")
    failed = pages.run(page, "skewless inspect clicks --fail-if", code=1)
    assert "error: max_share > 0.05: it is 0.13" in failed
    assert "max_over_avg > 1.5: it is" not in failed
    assert pages.run(page, "skewless init").count("  count ") == 10
    # Of the pipelines with many results, this one has the fewest.
    assert pages.run("docs/how-to/read-results.md", "skewless results").count("  count ") == 10
    assert Path("results.csv").read_text().count("\n") > 10
    Path("keys.tsv").write_text(lines_of_keys(2_000))
    Path("ticks.tsv").write_text(lines_of_keys(2_000))
    assert "Recommended: " in pages.run("README.md", "skewless simulate")
    assert "Recommended: " in pages.run("docs/how-to/aggregate-locally.md", "skewless simulate")

    pages.enter("texts")
    Path("LICENSE").write_text((ROOT / "LICENSE").read_text())
    assert "dynamic_key" in pages.run("docs/how-to/compare-groupings.md", "tr -cs")
    assert "dynamic_key" in pages.run("docs/how-to/compare-groupings.md", "skewless simulate")
    assert set(Path("workers.txt").read_text().split()) <= set(map(str, range(10)))

    send_sales(pages.broker)
    pages.enter(
        "shop", json.dumps({"name": "shop", "source": {"topic": "sales"}, "splitter": {"key": {"field": "user"}}})
    )
    assert "created shop.tuples" in pages.run("docs/how-to/upgrade.md", "skewless topics apply")
    send_dead_letter(pages.broker)
    page = "docs/how-to/read-any-topic.md"
    assert 'value        {"name": "a"}' in pages.run(page, "skewless dead-letters list")
    page = "docs/how-to/start-again.md"
    replayed = pages.run(page, "skewless dead-letters")
    assert "1 record replayed to sales\n" in replayed
    assert "1 record replayed to sales-to-repair\n" in replayed
    assert "left out: 1 record replayed before" in pages.run(page, "skewless dead-letters")
    pages.answer(page, "skewless reset -f pipeline.yaml --to-start", b"created topic shop.replays")
    pages.answer(page, "skewless reset -f pipeline.yaml --delete", b"deleted topic shop.replays")

    check_sizes(pages)
    check_plan(pages)
    check_history(pages)

    for name, key in CHECKS.items():
        pages.enter(name, pipeline_of(f"docs/how-to/{name}.md"))
        assert "is valid" in pages.run(f"docs/how-to/{name}.md", key)
    page = "docs/how-to/secured-cluster.md"
    pages.enter("secured-cluster", pipeline_of(page))
    assert "team-a.splitter" in pages.run(page, "skewless topics acls -f pipeline.yaml --principal")
    pages.run(page, "skewless topics acls -f pipeline.yaml --format")
    assert "kafka-acls.sh" in Path("rights.sh").read_text()
    assert "KafkaUser" in Path("users.yaml").read_text()

    assert pages.done == {str(block) for block in BLOCKS if RUN_BY[block.page][key_of(block) or ""] == HERE}
