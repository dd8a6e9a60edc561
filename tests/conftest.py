import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def plug_in(tmp_path_factory):
    """The folder into which the third party's package in tests/plugin is installed, as pip does it."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([*pip, *options, str(HERE / "plugin")], check=True)
    return target


@pytest.fixture
def assay(plug_in, tmp_path):
    """Run the command ``assay`` in an empty folder, with the third party's method installed."""

    def run(*arguments, code=0, env=None, timeout=120):
        environment = os.environ | {"PYTHONPATH": str(plug_in), "ASSAY_CACHE": str(tmp_path / "cache")} | (env or {})
        done = subprocess.run(
            [str(Path(sys.executable).with_name("assay")), *map(str, arguments)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
