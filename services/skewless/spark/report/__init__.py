"""HTML reports: self-contained files that need no network, with a light and a dark colour scheme."""

from __future__ import annotations

import importlib.util

from skewless.errors import ConfigurationError, how_to_add


def require_packages() -> None:
    """Raise ConfigurationError if a package of the extra `report` is missing, before the work for a report begins."""
    missing = [name for name in ("jinja2", "plotly") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"the report needs {' and '.join(missing)}: {how_to_add('report')}")
