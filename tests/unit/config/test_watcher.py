"""Changes of the pipeline's file while a stage runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from skewless.config import loader
from skewless.config.watcher import ConfigWatcher

TEXT = "name: p\nsource: {topic: t}\nrouter: {workers: %s}\nworker_input: {max_workers: %s}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text(4))
    return path


@pytest.fixture
def output(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "skewless.config.watcher")
    return caplog


def text(workers: object, max_workers: int = 16, more: str = "") -> str:
    return TEXT % (workers, max_workers) + more


def live(file: Path, environ: Mapping[str, str] | None = None) -> ConfigWatcher:
    environ = environ or {}
    made = ConfigWatcher(file, environ, loader.load(file, environ), "router")
    assert polls(made) == []
    return made


def polls(tested: ConfigWatcher, times: int = 4) -> list[int]:
    """Return the changes that the polls report."""
    return [workers for workers in (tested.poll() for _ in range(times)) if workers is not None]


def test_config_watcher_new_workers_are_returned_and_logged_once(file: Path, output: pytest.LogCaptureFixture) -> None:
    tested = live(file)
    for workers in (12, 2, 4):
        file.write_text(text(workers))
        assert polls(tested) == [workers]
    assert output.messages == [
        f"{file}: router.workers is {now} now, was {before}" for before, now in ((4, 12), (12, 2), (2, 4))
    ]


def test_config_watcher_change_before_the_first_poll_is_returned(file: Path) -> None:
    settings = loader.load(file, {})
    file.write_text(text(5))
    assert polls(ConfigWatcher(file, {}, settings, "router")) == [5]


def test_config_watcher_swapped_symbolic_link_is_followed(tmp_path: Path) -> None:
    """Replace the file as Kubernetes does: pipeline.yaml -> ..data/pipeline.yaml, ..data -> a new folder."""
    for name, workers in (("old", 4), ("new", 9)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pipeline.yaml").write_text(text(workers))
    (tmp_path / "..data").symlink_to("old")
    file = tmp_path / "pipeline.yaml"
    file.symlink_to("..data/pipeline.yaml")
    tested = live(file)
    (tmp_path / "..tmp").symlink_to("new")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert polls(tested) == [9]


def test_config_watcher_partly_written_file_is_not_applied(file: Path, output: pytest.LogCaptureFixture) -> None:
    tested = live(file)
    for content in ("", "name: p\nsource: {topic: t}\n", text(6)):
        file.write_text(content)
        assert tested.poll() is None
    assert polls(tested) == [6]
    assert [record.levelname for record in output.records] == ["INFO"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (text(0), "router.workers: should be greater than or equal to 1"),
        (text(17), "router.workers (17) is more than worker_input.max_workers (16)"),
        ("name: [", "not valid YAML"),
        ("", "must be a YAML mapping"),
        (text(20, 32), "router.workers: 20 is more than worker-input's 16 partitions"),
    ],
)
def test_config_watcher_invalid_file_is_reported_once_and_changes_nothing(
    file: Path, output: pytest.LogCaptureFixture, content: str, problem: str
) -> None:
    tested = live(file)
    file.write_text(content)
    assert polls(tested) == []
    warning = output.messages[-1]
    assert problem in warning
    assert warning.startswith("the changed file is ignored, router.workers stays 4: ")
    assert len([message for message in output.messages if message == warning]) == 1
    file.write_text(text(7))
    assert polls(tested) == [7]


def test_config_watcher_unset_max_workers_stay_those_of_the_topic(file: Path, output: pytest.LogCaptureFixture) -> None:
    settings = loader.load(file, {})
    of_topic = settings.worker_input.model_copy(update={"max_workers": 64})
    tested = ConfigWatcher(file, {}, settings.model_copy(update={"worker_input": of_topic}), "router")
    file.write_text("name: p\nsource: {topic: t}\nrouter: {workers: 40}\n")
    assert polls(tested) == [40]
    assert [message for message in output.messages if "restart" in message] == []
    file.write_text("name: p\nsource: {topic: t}\nrouter: {workers: 65}\n")
    assert polls(tested) == []
    assert "router.workers: 65 is more than worker-input's 64 partitions" in output.messages[-1]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 20_000, b"name: \x00"], ids=["bytes", "nesting", "zero"])
def test_config_watcher_any_content_keeps_polling(file: Path, output: pytest.LogCaptureFixture, content: bytes) -> None:
    tested = live(file)
    file.write_bytes(content)
    assert polls(tested) == []
    assert [message.startswith("the changed file is ignored") for message in output.messages] == [True]
    file.write_text(text(7))
    assert polls(tested) == [7]


def test_config_watcher_missing_file_is_reported_once(file: Path, output: pytest.LogCaptureFixture) -> None:
    tested = live(file)
    file.unlink()
    assert polls(tested) == []
    assert [message for message in output.messages if "cannot be read" in message] == output.messages
    assert len(output.messages) == 1
    file.write_text(text(7))
    assert polls(tested) == [7]


def test_config_watcher_change_incompatible_with_state_is_logged(file: Path, output: pytest.LogCaptureFixture) -> None:
    tested = live(file)
    file.write_text(text(4, more="aggregator: {window_s: 120}\n"))
    assert polls(tested) == []
    assert output.messages[1:] == [
        f"{file}: incompatible with existing state, a restart will fail: aggregator.window_s: is 120.0, was 60.0"
    ]


def test_config_watcher_environment_variable_overrides_the_changed_file(file: Path) -> None:
    tested = live(file, {"SKEWLESS__ROUTER__WORKERS": "3"})
    file.write_text(text(7))
    assert polls(tested) == []


def test_config_watcher_other_changes_are_named_once_without_values(
    file: Path, output: pytest.LogCaptureFixture
) -> None:
    kafka = "kafka: {security_protocol: SASL_SSL, sasl: {username: u, password: %s}}\n"
    file.write_text(text(4, more=kafka % "before"))
    tested = live(file)
    file.write_text(text(4, more="worker: {pane_s: 5}\n" + kafka % "geheim"))
    assert polls(tested) == []
    file.write_text(text(5, more="worker: {pane_s: 5}\n" + kafka % "geheim2"))
    assert polls(tested) == [5]
    assert output.messages == [
        f"{file}: takes effect after a restart: kafka.sasl.password, worker.pane_s",
        f"{file}: router.workers is 5 now, was 4",
    ]
    assert "geheim" not in output.text
