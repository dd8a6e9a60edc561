import json

import numpy as np
import pandas as pd
import pytest
from cprd_rows import rows_of
from typer.testing import CliRunner

from assay.alignment.cprd import Comparisons, fit_bt
from assay.alignment.cprd.use import app
from assay.errors import InputError


def use(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def refused(*words):
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    return str(caught.value)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    rows_of(0).assign(person=np.arange(400) % 40, a=1.0, b=0.5).to_csv(path, index=False)
    return path


def test_a_report_of_rows(rows, tmp_path):
    out = tmp_path / "out"
    said = use(rows, "--suggest", 5, "--draws", 50, "-o", out)
    assert said.startswith("10 items, 1 component; ")
    names = {"scores.csv", "report.md", "report.json", "next_pairs.csv", "scores.png", "shares.png", "components.png"}
    assert {path.name for path in out.iterdir()} == names
    scores = pd.read_csv(out / "scores.csv", index_col="item")
    fit = fit_bt(Comparisons.from_triplets(rows_of(0)))
    np.testing.assert_allclose(scores["score"][fit.scores.index], fit.scores, atol=1e-9)
    np.testing.assert_allclose(scores["std_err"][fit.scores.index], fit.std_err, atol=1e-9)
    assert scores["score"].is_monotonic_decreasing
    assert scores["rows"].sum() == 800
    assert scores["wins"].sum() == 400
    assert pd.read_csv(out / "next_pairs.csv").columns.tolist() == ["i", "j", "gain"]
    report = json.loads((out / "report.json").read_text())
    assert not any("e+" in line for line in (out / "report.md").read_text().splitlines())
    assert report["representability"]["n_boot"] == 50
    assert report["efficiency"]["rows"] == 400
    assert report["shape"]["matching"] is False
    text = (out / "report.md").read_text()
    assert "![Scores of the largest component](scores.png)" in text
    assert "No penalty was added" in text
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in names if name.endswith("png"))


def test_options_reach_the_fit(rows, tmp_path):
    use(
        rows,
        "--ridge",
        2,
        "--cluster",
        "person",
        "--score-chosen",
        "a",
        "--score-rejected",
        "b",
        "-o",
        tmp_path / "out",
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["fit"]["ridge"] == 2
    assert report["audit"]["accuracy"] == 1
    assert report["audit"]["scale"] is None
    text = (tmp_path / "out" / "report.md").read_text()
    assert "A penalty of 2/2" in text
    assert "## The reward model" in text
    assert (tmp_path / "out" / "audit.png").exists()


def chats(path, n=40, prompt=True):
    rng = np.random.default_rng(0)
    lines = []
    for k in range(n):
        ask = {"role": "user", "content": f"Question {k}"}
        sides = [[ask, {"role": "assistant", "content": f"Answer {k} {word} " + "so " * 40}] for word in ("yes", "no")]
        row = {"chosen": sides[0], "rejected": sides[1], "r0": float(rng.normal()), "r1": float(rng.normal())}
        lines.append(json.dumps(row | ({"prompt": [ask]} if prompt else {})))
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_preference_data_of_chats_are_almost_a_matching(kind, tmp_path):
    path = tmp_path / "chats.jsonl"
    chats(path)
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        pd.read_json(path, lines=True).to_parquet(tmp_path / "chats.parquet")
        path = tmp_path / "chats.parquet"
    said = use(path, "--score-chosen", "r0", "--score-rejected", "r1", "--suggest", 3, "-o", tmp_path / "out")
    assert said.startswith("Almost a matching: 100% of 80 items")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "**The comparisons are almost a matching**" in text
    assert "give --context prompt" in text
    assert "No item has a finite score" in text
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["audit"]["rows"] == 40
    assert report["representability"]["p"] is None
    scores = pd.read_csv(tmp_path / "out" / "scores.csv")
    assert scores["score"].isna().all()
    assert json.loads(scores["item"][0])[0]["role"] == "user"


def test_chats_in_their_contexts(tmp_path):
    path = tmp_path / "chats.jsonl"
    chats(path)
    use(path, "--context", "prompt", "--suggest", 2, "-o", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["shape"]["contexts"] == 40
    assert report["shape"]["matching"] is True
    pairs = pd.read_csv(tmp_path / "out" / "next_pairs.csv")
    assert pairs.columns.tolist() == ["context", "i", "j", "gain"]
    assert "--score-chosen" in (tmp_path / "out" / "report.md").read_text()


def test_ids_stay_text(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("chosen,rejected\n007,NA\nNA,007\n7,NA\nNA,7\n")
    use(path, "-o", tmp_path / "out")
    scores = pd.read_csv(tmp_path / "out" / "scores.csv", dtype=str, keep_default_na=False)
    assert set(scores["item"]) == {"007", "7", "NA"}


def test_a_pool_of_pairs(rows, tmp_path):
    pd.DataFrame({"i": ["item 0", "item 0"], "j": ["item 1", "new"]}).to_csv(tmp_path / "pool.csv", index=False)
    use(rows, "--suggest", 1, "--pool", tmp_path / "pool.csv", "--criterion", "D", "-o", tmp_path / "out")
    assert pd.read_csv(tmp_path / "out" / "next_pairs.csv")["j"].tolist() == ["new"]


def test_what_is_refused(rows, tmp_path):
    out = ("-o", tmp_path / "out")
    assert "no column 'winner'" in refused(rows, "--chosen", "winner", *out)
    assert "no column 'who'" in refused(rows, "--cluster", "who", *out)
    assert "there is no file" in refused(tmp_path / "none.csv", *out)
    assert "both --score-chosen and --score-rejected" in refused(rows, "--score-chosen", "a", *out)
    assert "--pool needs --suggest" in refused(rows, "--pool", rows, *out)
    assert "no column 'i'" in refused(rows, "--pool", rows, "--suggest", 1, *out)
    assert "--criterion must be A or D" in refused(rows, "--criterion", "E", "--suggest", 1, *out)
    assert "--seed must be ≥ 0" in refused(rows, "--seed", -1, *out)
    assert "k must be at most 10000" in refused(rows, "--suggest", 10**9, *out)
    (tmp_path / "half.jsonl").write_text('{"chosen": "a\\ud800", "rejected": "b"}\n')
    assert "half a character" in refused(tmp_path / "half.jsonl", *out)
    assert "--suggest must be ≥ 0" in refused(rows, "--suggest", -1, *out)
    assert "ridge must be a number ≥ 0" in refused(rows, "--ridge", -1, *out)
    assert "n_boot must be a whole number" in refused(rows, "--draws", -1, *out)
    assert "exists and is not empty" in refused(rows, "-o", tmp_path)
    (tmp_path / "gap.csv").write_text("chosen,rejected\na,b\n,c\n")
    assert "gap.csv: 'chosen' is missing in row 2 of 2" in refused(tmp_path / "gap.csv", *out)
    (tmp_path / "weights.csv").write_text("chosen,rejected,n\na,b,1\nb,a,-2\n")
    assert "not -2 in row 2" in refused(tmp_path / "weights.csv", "--weight", "n", *out)
    scored = ("--score-chosen", "r0", "--score-rejected", "r1")
    (tmp_path / "scores.csv").write_text("chosen,rejected,r0,r1\na,b,1,2\nb,a,,1\n")
    assert "not nan in row 2" in refused(tmp_path / "scores.csv", *scored, *out)
    (tmp_path / "same.csv").write_text("chosen,rejected\na,a\nb,b\n")
    assert "no comparisons: 'chosen' and 'rejected' are the same" in refused(tmp_path / "same.csv", *out)
    (tmp_path / "empty.csv").write_text("chosen,rejected\n")
    assert "0 rows" in refused(tmp_path / "empty.csv", *out)
    assert not (tmp_path / "out").exists()
