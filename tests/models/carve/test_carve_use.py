import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.errors import InputError
from assay.models.carve import CarveRouter
from assay.models.carve.table import read_table
from assay.models.carve.use import app
from assay.parts import minilm

WORDS = {
    "sql": "select rows from a table with a join",
    "maps": "find the shortest road between two towns",
    "poems": "write a verse that rhymes about spring",
    "code": "sort a list of numbers in python",
}


@pytest.fixture(autouse=True)
def letters(monkeypatch):
    """Instead of the language model: how often each letter stands in a text."""

    def encode(texts, batch_size=64, device="cpu"):
        return np.array([[t.lower().count(chr(97 + i)) + 0.01 for i in range(26)] for t in texts], dtype=np.float32)

    monkeypatch.setattr(minilm, "encode", encode)


def hub(names, month=None):
    rows = [
        {"text": f"{WORDS[name]} {'x' * i}", "model": name, "task": "data" if name in ("sql", "code") else "rest"}
        for name in names
        for i in range(6)
    ]
    return pd.DataFrame(rows).assign(month=month) if month else pd.DataFrame(rows)


COLUMNS = ["--query", "text", "--id", "model", "--domain", "task"]


def run(*arguments, fails=None):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if fails is None:
        assert result.exit_code == 0, (result.output, result.exception)
    else:
        assert isinstance(result.exception, fails[0] if isinstance(fails, tuple) else InputError)
        assert (fails[1] if isinstance(fails, tuple) else fails) in str(result.exception)
    return result.output


def test_fit_route_update_retire_revive(tmp_path):
    router = tmp_path / "router"
    months = pd.concat([hub(["sql", "maps"], "2026-10"), hub(["poems"], "2026-09")])
    months.to_csv(tmp_path / "hub.csv", index=False)
    out = run("fit", "--table", tmp_path / "hub.csv", *COLUMNS, "--experience", "month", "--out", router)
    assert out.index("2026-09: 6 queries, 1 ids") < out.index("2026-10: 12 queries, 2 ids")
    assert "3 ids, 18 queries learned, 2 kept" in out
    assert CarveRouter.load(router).registry_["experience"].tolist() == [0, 1, 1]

    hub(["code", "poems"]).to_csv(tmp_path / "new.tsv", index=False, sep="\t")
    out = run("update", router, "--table", tmp_path / "new.tsv", *COLUMNS)
    assert "4 ids, 30 queries learned, 3 kept" in out

    out = run("route", router, "--text", WORDS["code"], "--text", WORDS["sql"], "-k", 2)
    lines = out.splitlines()
    assert lines[0] == WORDS["code"]
    assert lines[1].split()[0] == "code"
    assert lines[3].split()[0] == "sql"
    assert len(lines[3].split()) == 4

    (tmp_path / "queries.txt").write_text(WORDS["maps"] + "\n\n" + WORDS["poems"] + "\n")
    out = run("route", router, "--file", tmp_path / "queries.txt", "--json", "-k", 1)
    assert [json.loads(line)["ids"] for line in out.splitlines()] == [["maps"], ["poems"]]

    assert "4 ids, 1 of them retired" in run("retire", router, "maps", "--out", tmp_path / "other")
    assert run("route", tmp_path / "other", "--text", WORDS["maps"], "-k", 1).split()[-2] != "maps"
    assert run("route", router, "--text", WORDS["maps"], "-k", 1).split()[-2] == "maps"
    run("retire", router, "maps", "sql")
    run("revive", router, "sql")
    assert CarveRouter.load(router).registry_.set_index("id")["retired"].to_dict() == {
        "poems": False, "sql": False, "maps": True, "code": False,
    }  # fmt: skip


def test_without_domains_it_says_so(tmp_path):
    hub(["sql", "maps"]).to_json(tmp_path / "hub.jsonl", orient="records", lines=True)
    out = run("fit", "--table", tmp_path / "hub.jsonl", *COLUMNS[:4], "--out", tmp_path / "r", "--init", "random")
    assert "No --domain column: all ids count as one domain." in out


def test_bad_input_is_one_line(tmp_path):
    table, router = tmp_path / "hub.csv", tmp_path / "router"
    hub(["sql", "maps"]).to_csv(table, index=False)
    fit = ["fit", "--table", table, "--out", router]
    run(*fit, fails="has no column 'query'; it has text, model, task")
    run(*fit, *COLUMNS, "--experience", "week", fails="has no column 'week'")
    run(*fit, *COLUMNS, "--init", "card", fails="--init must be prototype or random")
    run(*fit, *COLUMNS, "--replay", 2, fails=(ValueError, "replay must lie between 0 and 1"))
    run("fit", "--table", tmp_path / "no.csv", "--out", router, fails="there is no file")
    run("fit", "--table", tmp_path / "hub.xls", "--out", router, fails="must be .csv, .tsv, .parquet or .jsonl")
    run("route", router, "--text", "a", fails="holds no router")
    run("route", router, fails="give queries that are not empty")
    run(*fit, "--query", "text", "--id", "text", fails="the column 'text' cannot be both query and id")
    empty, long = tmp_path / "empty.csv", tmp_path / "long.csv"
    empty.write_text("text,model\na,x\nb,\n")
    run("fit", "--table", empty, *COLUMNS[:4], "--out", router, fails="the column 'model' is empty in row 1")
    long.write_text("text,model\na,x,y\nb,y,z\n")  # pandas would take the first column for an index
    run("fit", "--table", long, *COLUMNS[:4], "--out", router, fails="a row is longer than the header")
    empty.unlink()
    long.unlink()
    run(*fit, *COLUMNS)
    run(*fit, *COLUMNS, fails="exists and is not empty")
    run("retire", router, "nobody", fails="has no id 'nobody'")
    run("route", router, "--text", " ", fails="give queries that are not empty")
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    run("route", router, "--file", tmp_path / "latin.txt", fails="no text in UTF-8")
    (tmp_path / "latin.txt").unlink()
    assert len(CarveRouter.load(router).ids_) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hub.csv", "router"]


def test_a_failed_fit_leaves_nothing(tmp_path):
    hub(["sql"]).assign(task=list("aaaaab")).to_csv(tmp_path / "hub.csv", index=False)
    run("fit", "--table", tmp_path / "hub.csv", *COLUMNS, "--out", tmp_path / "r", fails="'sql' has two domains")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "jsonl"])
def test_every_format_reads_the_same_and_texts_stay_texts(tmp_path, suffix):
    table = pd.DataFrame({"q": ["NA", "b, c"], "m": ["007", "08"], "t": ["9", "10"]})
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        table.to_parquet(path)
    elif suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    read = read_table(path, {"query": "q", "id": "m", "domain": None, "experience": "t"})
    assert read.columns.tolist() == ["query", "id", "experience"]
    assert read["id"].tolist() == ["007", "08"]
    assert read["query"].tolist() == ["NA", "b, c"]
    assert read["experience"].tolist() == [9, 10]


def test_a_damaged_table_is_refused(tmp_path):
    (tmp_path / "t.jsonl").write_text("{]")
    with pytest.raises(InputError, match="cannot be read"):
        read_table(tmp_path / "t.jsonl", {"query": "q"})
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(InputError, match="cannot be read"):
        read_table(tmp_path / "t.csv", {"query": "q"})
