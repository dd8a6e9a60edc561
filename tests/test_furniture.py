import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_new_room_can_be_listed_checked_and_tested_at_once(tmp_path):
    """The furniture is written into a copy of this checkout, and everything about it runs."""
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    shutil.rmtree(copy / "src" / "assay" / "federated", ignore_errors=True)  # the first room of a field
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}

    def run(*command):
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def assay(*arguments):
        return run(sys.executable, "-c", "from assay.cli import main; main()", *arguments)

    written = assay("new", "federated", "quiet-counts").split()
    assert len(written) == 7
    assert "quiet-counts" in assay("list")
    shown = assay("show", "quiet-counts")
    assert "error: quiet-counts lower than one-row" in shown
    assert "✓ supported" in assay("check", "quiet-counts", "--budget", "smoke", "--jobs", "1")
    room = [path for path in written if path.endswith(".py")]
    tests = [path for path in room if "/tests/" in path]
    assert " passed" in run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests)
    run(sys.executable, "-m", "ruff", "check", *room)
    run(sys.executable, "-m", "ruff", "format", "--check", *room)
