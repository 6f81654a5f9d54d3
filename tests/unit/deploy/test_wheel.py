"""The wheel contains the data files that the package reads."""

from __future__ import annotations

from hatchling.builders.wheel import WheelBuilder

from helpers.docs_blocks import ROOT

PACKAGE = ROOT / "services" / "skewless"


def test_wheel_contains_every_template_of_a_report() -> None:
    included = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    templates = {str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*.j2")}
    assert templates
    assert templates <= included
