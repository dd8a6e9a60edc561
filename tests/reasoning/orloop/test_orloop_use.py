"""``assay use orloop``: what people and programs read from the files that it writes."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from assay.errors import EndpointError, InputError
from assay.reasoning.orloop import LinearModel, OpenAIAgent, RepairEnv, generate, repair, solve
from assay.reasoning.orloop.files import read_instances, write_instances
from assay.reasoning.orloop.use import app


@pytest.fixture(scope="module")
def one():
    return generate(1, errors="A", domains="transport", seed=11)[0]


def call(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_the_conflict_is_written(tmp_path, one):
    path = one.model.write(tmp_path / "m.mps")
    said = call("iis", path, "--out", tmp_path / "c")
    known = json.loads((tmp_path / "c" / "iis.json").read_text())
    assert known["certified"] is True
    assert known["status"] == "infeasible"
    assert all(name in said for name in known["rows"])
    with (tmp_path / "c" / "iis.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == known["rows"]
    report = (tmp_path / "c" / "report.md").read_text()
    assert all(name in report for name in known["rows"])
    if "relaxations.png" in report:
        assert (tmp_path / "c" / "relaxations.png").read_bytes()[:4] == b"\x89PNG"


def test_the_repair_is_written_and_right(tmp_path, one):
    path = one.model.write(tmp_path / "m.mps")
    call("repair", path, "--out", tmp_path / "f")
    fixed = LinearModel.read(tmp_path / "f" / "fixed.mps")
    assert solve(fixed).objective == pytest.approx(one.optimum)
    known = json.loads((tmp_path / "f" / "repair.json").read_text())
    assert known["status"] == "optimal"
    assert {edit["edit"].split()[1] for edit in known["edits"]} == set(one.culprits)


def test_a_feasible_model_is_left_alone(tmp_path, one):
    path = one.original.write(tmp_path / "m.mps")
    assert "nothing conflicts" in call("iis", path, "--out", tmp_path / "c")
    assert "already feasible" in call("repair", path, "--out", tmp_path / "f")
    assert LinearModel.read(tmp_path / "f" / "fixed.mps").same(one.original)
    endless = LinearModel.from_arrays([[1.0]], [0], [np.inf], [0], [np.inf], [-1])
    assert repair(endless).status == "unbounded"


def test_made_models_come_back(tmp_path):
    call("make", "--n", 3, "--errors", "ABD", "--seed", 5, "--out", tmp_path / "made")
    back, fresh = read_instances(tmp_path / "made"), generate(3, errors="ABD", seed=5)
    for a, b in zip(back, fresh, strict=True):
        assert a.model.same(b.model)
        assert a.original.same(b.original)
        assert (a.id, a.culprits, a.undo, a.iis_rows, a.optimum) == (b.id, b.culprits, b.undo, b.iis_rows, b.optimum)


def test_bad_files_are_named(tmp_path, one):
    with pytest.raises(InputError, match="there is no file"):
        call("iis", tmp_path / "none.mps", "--out", tmp_path / "c")
    path = one.model.write(tmp_path / "m.mps")
    with pytest.raises(InputError, match="belong together"):
        call("repair", path, "--out", tmp_path / "f", "--agent", "http://localhost:1/v1")
    write_instances([one], tmp_path / "set")
    table = tmp_path / "set" / "instances.jsonl"
    table.write_text(table.read_text().replace("models/00000.mps", "../m.mps"))
    with pytest.raises(InputError, match="must lie in"):
        read_instances(tmp_path / "set")
    table.write_text("{}\n")
    with pytest.raises(InputError, match="line 1"):
        read_instances(tmp_path / "set")
    with pytest.raises(InputError, match=r"instances\.jsonl"):
        read_instances(tmp_path)


def test_an_endpoint_that_is_down(one):
    agent = OpenAIAgent("http://127.0.0.1:9/v1", "none", max_retries=0, timeout=2)
    env = RepairEnv(one)
    env.reset()
    with pytest.raises(EndpointError):
        agent.act(env)
    assert env.score().steps == 0  # what was scored so far is kept
