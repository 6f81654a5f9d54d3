"""YAML as settings want it: a mapping, no name twice, dates as text, and errors that quote nothing from the file."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from skewless.errors import ConfigurationError

DEEPEST = 100
"""Levels of nesting; PyYAML recurses, so that its own limit would be that of the interpreter's stack."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader; a date stays text for the setting that takes it, and a name twice is an error."""

    depth = 0

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.depth == DEEPEST:
            problem = f"nested deeper than {DEEPEST} levels"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, problem, mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the name {key.value} stands here twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """Parse one YAML document; raises yaml.YAMLError."""
    return yaml.load(text, _Loader)  # noqa: S506 - derived from SafeLoader


def read(path: Path) -> dict[str, Any]:
    """Read a file that holds one mapping; ConfigurationError with file, line and column when it does not."""
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}; check the path given to -f") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}:{_place_and_problem(error)}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: must be a YAML mapping such as `name: words`")
    return document


def _place_and_problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " is not YAML text: it has a character that YAML does not allow"
    mark = error.problem_mark
    # PyYAML quotes the alias or tag, which may be a password that should have stood in quotes.
    quotes = isinstance(error, yaml.composer.ComposerError) or "tag" in (error.problem or "")
    problem = "a value that begins with `*`, `&` or `!` needs quotes" if quotes else error.problem
    return f"{mark.line + 1}:{mark.column + 1}: not valid YAML: {problem}"
