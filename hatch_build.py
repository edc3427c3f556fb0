"""The package's build: sees to it that a wheel and an sdist carry the dashboard."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    """Builds the page where it is not fresh; what was built is taken in as an artifact."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node.js comes as a wheel, and only where it is needed and not there."""
        builder = _builder(Path(self.root))
        needed = not builder.is_fresh() and builder.find_node() is None
        return [builder.NODE_WHEEL] if needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are gathered."""
        del build_data
        builder = _builder(Path(self.root))
        if builder.is_fresh():
            return
        try:
            builder.build()
        except builder.BuildError as error:
            # Whoever works on the code can do without a page; whoever installs a wheel cannot.
            if version != "editable" and not builder.is_built():
                raise
            self.app.display_warning(f"the dashboard was not built: {error}")


def _builder(root: Path) -> ModuleType:
    path = root / "tools" / "build_dashboard.py"
    spec = importlib.util.spec_from_file_location("build_dashboard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks itself up by the module's name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
