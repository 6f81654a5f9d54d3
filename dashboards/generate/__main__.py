"""Writes all generated files: `python -m dashboards.generate [RUNBOOK_ADDRESS]`, in the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.generate.files import files


def main() -> None:
    """Write the files that have changed, and print their names."""
    root = Path(__file__).parents[2]
    for name, content in files(*filter(None, sys.argv[1:2])).items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
