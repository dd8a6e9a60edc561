"""Databases to test on: SQLite always, PostgreSQL where a server and psycopg are installed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

_PROGRAMS = sorted(
    (folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if (folder / "initdb").exists()),
    key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0,
)


def _has_server() -> bool:
    if not _PROGRAMS or importlib.util.find_spec("psycopg") is None:
        return False
    if os.geteuid() != 0:
        return True
    try:  # the server refuses to run as root
        pwd.getpwnam("postgres")
    except KeyError:
        return False
    return True


DATABASES = ["sqlite", "postgresql"] if _has_server() else ["sqlite"]


def pytest_report_header() -> str:
    return _covered()


def pytest_report_collectionfinish() -> str:
    # The header is not printed with -q, nor where this file is found only while collecting.
    return _covered()


def _covered() -> str:
    without = "" if len(DATABASES) > 1 else " (no PostgreSQL server or no psycopg here)"
    return f"storage tests cover: {', '.join(DATABASES)}{without}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames:
        metafunc.parametrize("url", DATABASES, indirect=True)
    elif "postgres" in metafunc.fixturenames:
        metafunc.parametrize("postgres", DATABASES[1:], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # An empty parameter set would be shown as skipped; it is not collected instead.
    items[:] = [item for item in items if "[NOTSET]" not in item.name]


class Server:
    """A PostgreSQL server of our own on 127.0.0.1, in a folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="assay-postgresql-"))
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(self.folder, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.running = False
        self._numbers = count()
        self._do("initdb", "-A", "scram-sha-256", "--pwfile", self._password(), "-U", "assay", "-N", "-E", "UTF8",
                 "--locale=C.UTF-8")  # fmt: skip
        with (self.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = ''\n"
                "fsync = off\nmax_connections = 50\n"
            )
        self.start()

    def _password(self) -> str:
        path = self.folder / "password"
        path.write_text("geheim\n")
        if self.user:
            shutil.chown(path, self.user)
        return str(path)

    def _do(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [_PROGRAMS[-1] / program, "-D", self.folder / "data", *arguments],
            check=True, user=self.user, cwd=self.folder, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        if not self.running:
            self._do("pg_ctl", "-w", "-l", str(self.folder / "log"), "start")
            self.running = True

    def stop(self) -> None:
        if self.running:
            self._do("pg_ctl", "-w", "-m", "immediate", "stop")
            self.running = False

    def new_database(self) -> str:
        """Create an empty schema, which is much quicker than a database; return the URL that works in it."""
        import psycopg

        name = f"test{next(self._numbers)}"
        url = f"postgresql://assay:geheim@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{url}?options=-csearch_path%3D{name}"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture
def postgres(server: Server) -> Iterator[Server]:
    """The server, running again after the test."""
    yield server
    server.start()


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'assay.db'}"
    server: Server = request.getfixturevalue("server")
    return server.new_database()


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Run the command ``assay`` here and now in the test's folder; it must refuse in one line, which is returned."""
    from assay import cli

    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["assay", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        assert (end.value.code, out, err.count("\n")) == (2, "", 1), (end.value.code, out, err)
        assert err.startswith("assay: ")
        return err

    return run
