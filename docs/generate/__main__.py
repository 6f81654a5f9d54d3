"""Writes all generated pages into a folder: `python -m docs.generate FOLDER`, in the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.reference_pages import pages


def main(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
