"""Reads YAML files of settings. Repeated names are errors, and errors quote nothing of the file."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from skewless.errors import ConfigurationError

MAX_DEPTH = 100
"""Maximum levels of nesting. PyYAML recurses, so without a limit it would exceed the interpreter's stack."""

PLAIN_VALUES = {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+",
    "float": r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": r"<<",
}
"""Patterns of the values without quotes that are not text, by type.

YAML 1.1 and YAML 1.2 read these values alike, so PyYAML writes texts that match with quotes. YAML 1.1 alone would also
change the country `NO` and the code `01067`.
"""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but only `PLAIN_VALUES` are not text, and a repeated name is an error."""

    depth = 0

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        None: [(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{text})\\Z")) for kind, text in PLAIN_VALUES.items()]
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.depth == MAX_DEPTH:
            problem = f"nested deeper than {MAX_DEPTH} levels"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, problem, mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[str] = set()
        # With a tag, `!!map [x]`, it may be another kind of node, which PyYAML refuses.
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the name {key.value} is used twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _named_error(tag: str, kind: str) -> None:
    """Let errors of PyYAML's constructor of a tag name the place of the value, as all others do, and not the value."""
    construct = _Loader.yaml_constructors[tag]

    def constructed(loader: _Loader, node: yaml.Node) -> Any:
        try:
            return construct(loader, node)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            raise yaml.constructor.ConstructorError(
                None, None, f"is no {kind} that can be read", node.start_mark
            ) from None

    _Loader.add_constructor(tag, constructed)


# An integer may have more digits than Python reads. The other three need a tag: `!!bool x`.
for _tag, _kind in {"int": "number", "float": "number", "bool": "boolean", "timestamp": "date"}.items():
    _named_error(f"tag:yaml.org,2002:{_tag}", _kind)


def parse(text: str) -> Any:
    """Parse one YAML document. Raises yaml.YAMLError."""
    return yaml.load(text, _Loader)  # noqa: S506 - derived from SafeLoader


def read(path: Path, example: str = "name: words") -> dict[str, Any]:
    """Read a file with one mapping, such as `example`.

    Raises ConfigurationError with file, line and column if it is invalid.
    """
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}:{_position_and_problem(error)}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: must be a YAML mapping such as `{example}`")
    return document


def _position_and_problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " is not YAML text: it has a character that YAML does not allow"
    mark = error.problem_mark
    if error.context == "expected a single document in the stream":
        return f"{mark.line + 1}:{mark.column + 1}: a second document begins: keep one, and remove `---`"
    # PyYAML quotes the alias or tag, which may be a password that the user forgot to put in quotes.
    needs_quotes = isinstance(error, yaml.composer.ComposerError) or "tag" in (error.problem or "")
    problem = "a value that begins with `*`, `&` or `!` needs quotes" if needs_quotes else error.problem
    return f"{mark.line + 1}:{mark.column + 1}: not valid YAML: {problem}"
