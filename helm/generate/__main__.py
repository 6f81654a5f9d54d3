"""Writes the generated files into the chart: `python -m helm.generate`, in the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from helm.generate.files import files

CHART = Path(__file__).parents[1] / "skewless"


def main() -> None:
    """Write the files that have changed, and print their names."""
    for name, content in files().items():
        path = CHART / name
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
