import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from assay import cli

QUICK = ("--budget", "smoke", "--jobs", "1", "--storage", "sqlite:///r.db")


def check(assay, *more, **options):
    return assay("check", "trimmed-mean", *QUICK, *more, **options)


def one_line(done):
    """A user's mistake is told in one line, on standard error, with nothing on standard output."""
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("assay: ")
    return lines[0]


@pytest.fixture
def table(tmp_path):
    rows = np.random.default_rng(0).standard_t(2, size=(400, 4))
    pd.DataFrame(rows, columns=list("abcd")).to_csv(tmp_path / "mine.csv", index=False)
    return tmp_path / "mine.csv"


def test_list_shows_built_in_and_third_party_methods(assay):
    text = assay("list").stdout
    assert re.search(r"knockoff-pca +\w+", text)
    assert re.search(r"trimmed-mean +a location estimate", text)
    names = {card["name"] for card in json.loads(assay("list", "--json").stdout)}
    assert {"knockoff-pca", "trimmed-mean"} <= names


@pytest.mark.parametrize("heavy", ["torch", "transformers", "sklearn", "scipy", "pandas", "sqlalchemy", "numpy"])
def test_import_and_list_load_nothing_heavy(heavy):
    for code in ("import assay", "import sys; from assay.cli import list_methods; list_methods()"):
        subprocess.run([sys.executable, "-c", f"{code}\nimport sys; assert {heavy!r} not in sys.modules"], check=True)


def test_show_prints_card_study_and_what_of_yours_it_accepts(assay):
    text = assay("show", "trimmed-mean").stdout
    for words in ("Drops the largest", "contaminated", "one-row", "trivial", "--data: a CSV file", "f(given, seed)"):
        assert words in text
    data = json.loads(assay("show", "trimmed-mean", "--json").stdout)
    assert [arm["role"] for arm in data["arms"]] == ["method", "baseline", "trivial"]


def test_show_prints_the_card_also_where_the_study_lacks_a_package(assay, plug_in, tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    without = {"PYTHONPATH": f"{tmp_path / 'hidden'}{os.pathsep}{plug_in}"}
    for method in ("carve", "csplora", "dot-moe", "sa-merging"):
        text = assay("show", method, env=without).stdout
        assert "When not" in text
        assert "needs torch; install it with: python -m pip install 'assay[models]'" in " ".join(text.split())
        assert "needs torch" in json.loads(assay("show", method, "--json", env=without).stdout)["missing"]
        assert "needs torch" in assay("check", method, env=without, code=2).stderr


def test_check_judges_every_claim_and_names_the_number_judged(assay):
    done = check(assay)
    assert "4 of 4 claims judged" in done.stdout
    assert done.stdout.count("supported") >= 4
    assert "30 of 30 cells, 0 failed" in done.stderr
    assert "a fair test needs many more rows" in done.stdout


def test_check_prints_json_alone(assay):
    (result,) = json.loads(check(assay, "--json").stdout)
    assert [claim["verdict"] for claim in result["claims"]] == ["supported", "supported", "not supported", "supported"]
    assert len(result["cells"]) == 30
    assert result["claims"][0]["bar"] == 0.5
    assert result["claims"][0]["interval"][1] < 0.5


def test_strict_fails_when_a_claim_is_not_supported(assay):
    check(assay, "--strict", code=1)
    check(assay, "--strict", "--task", "contaminated", "--arm", "trimmed", "--arm", "mean")


def test_a_second_check_runs_nothing_and_an_extended_one_says_so(assay):
    check(assay)
    again = check(assay)
    assert "looked at" not in again.stdout
    more = check(assay, "--seeds", "7")
    assert "looked at with 5 seeds and then extended to 7" in " ".join(more.stdout.split())


def test_tasks_and_arms_can_be_chosen(assay):
    done = check(assay, "--task", "clean", "--arm", "trimmed", "--arm", "mean")
    assert "10 of 10 cells" in done.stderr
    assert "untested" in done.stdout


def test_your_arm_is_judged_in_plain_words(assay, tmp_path, table):
    (tmp_path / "mymodule.py").write_text(
        "import numpy as np\nimport helper\ndef fit(given, seed):\n    return helper.middle(given)\n"
        "def worse(given, seed):\n    return np.full(given.shape[1], 9.0)\n"
    )
    (tmp_path / "helper.py").write_text("import numpy as np\ndef middle(x):\n    return np.median(x, axis=0)\n")
    last = check(assay, "--with", "mine=mymodule:fit").stdout.strip().split("\n\n")[-1]
    assert "CPU time of mine" in last
    text = " ".join(check(assay, "--with", "bad=mymodule:worse", "--data", table).stdout.split())
    assert "Switch: trimmed beats bad by" in text
    assert "95 % interval" in text
    text = " ".join(check(assay, "--with", "mine=mymodule:fit", "--data", table, "--seeds", "12").stdout.split())
    assert re.search(r"(Don't switch: trimmed does not beat mine|Can't tell whether trimmed beats mine)", text)


def test_a_change_in_your_module_or_its_helper_runs_your_arm_again_and_only_it(assay, tmp_path):
    (tmp_path / "mine.py").write_text("from helper import f\n")
    (tmp_path / "helper.py").write_text("def f(given, seed):\n    return given[0]\n")
    check(assay, "--with", "mine=mine:f")
    count = lambda: dict(  # noqa: E731
        sqlite3.connect(tmp_path / "r.db").execute("select arm, count(*) from assay_record group by arm").fetchall()
    )
    assert count()["mine"] == 5
    (tmp_path / "helper.py").write_text("def f(given, seed):\n    return given[1]\n")
    check(assay, "--with", "mine=mine:f")
    assert count() == {"mine": 10, "trimmed": 10, "mean": 10, "one-row": 10}


def test_a_module_named_like_one_of_the_standard_library_is_yours(assay, tmp_path):
    (tmp_path / "test.py").write_text("def fit(given, seed):\n    return given.mean(axis=0)\n")
    text = " ".join(check(assay, "--with", "mine=test:fit").stdout.split())
    assert "30 of" not in text
    assert "trimmed beats mine" in text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no such luck')", "ValueError: no such luck"),
        ("import os; os._exit(1)", "the process died (exit code 1)"),
        ("while True: pass", "ran past its limit of 2 s"),
        ("x = []\n    while True: x.append(bytearray(50_000_000))", "more memory than its limit"),
        ("return 'nonsense'", "its output cannot be scored"),
    ],
    ids=["raises", "exits", "hangs", "eats", "nonsense"],
)
def test_an_evil_arm_of_yours_is_a_failed_record_and_the_rest_is_judged(assay, tmp_path, body, reason):
    (tmp_path / "evil.py").write_text(f"def fit(given, seed):\n    {body}\n")
    options = (
        "--with",
        "evil=evil:fit",
        "--limit",
        "2" if "while True: pass" in body else "30",
        "--memory",
        "0.5",
        "--task",
        "contaminated",
    )
    done = check(assay, *options)
    text = " ".join(done.stdout.split())
    assert reason in text
    assert "Can't tell whether trimmed beats evil" in text
    assert "✓ supported" in text
    assert "5 failed" in done.stderr


def test_placebo_supports_nothing(assay):
    text = " ".join(check(assay, "--placebo", "--strict").stdout.split())
    assert "placebo" in text.lower()


def test_dry_run_prints_cells_and_estimate_and_runs_nothing(assay):
    done = check(assay, "--dry-run")
    assert "30 cells, 30 to run" in done.stdout
    assert "no time is known yet" in done.stdout
    check(assay)
    done = check(assay, "--dry-run", "--seeds", "8")
    assert re.search(r"48 cells, 18 to run at 1 jobs: about \d+ s", done.stdout)


def test_export_writes_records_that_other_programs_read(assay, tmp_path):
    check(assay)
    for form, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet), ("json", pd.read_json)):
        out = tmp_path / f"records.{form}"
        assay("export", "--format", form, "-o", out, "--storage", "r.db")
        frame = read(out)
        assert len(frame) == 30
        assert set(frame["arm"]) == {"trimmed", "mean", "one-row"}
        assert frame["metric.error"].notna().all()
    assert not list(tmp_path.glob("*.part"))
    assert assay("export", "--storage", "r.db", "--study", "none").stdout.count("\n") == 1


def test_doctor_names_what_is_there_and_what_is_not(assay):
    done = assay("doctor", "knockoff-pca")
    assert re.search(r"(✓|✗) numpy", done.stdout)
    assert "cores" in done.stdout
    found = json.loads(assay("doctor", "--json").stdout)
    assert all(p["install"].endswith("'") for p in found["packages"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "knockof-pca"], "did you mean 'knockoff-pca'?"),
        (["show", "nothing"], "there is no method 'nothing'"),
        (["check", "trimmed-mean", "--budget", "huge"], "budget 'huge' is none of smoke, quick, full, paper"),
        (["check", "trimmed-mean", "--arm", "ghost"], "no arm 'ghost'; it has trimmed, mean, one-row"),
        (["check", "trimmed-mean", "--task", "ghost"], "no task 'ghost'; it has clean, contaminated"),
        (["check", "trimmed-mean", "--seeds", "0"], "seeds must be at least 1"),
        (["check", "trimmed-mean", "--seeds", "many"], "Invalid value for '--seeds'"),
        (["check", "trimmed-mean", "--jobs", "0"], "--jobs must be at least 1"),
        (["check", "trimmed-mean", "--limit", "-1"], "--limit must be positive"),
        (["check", "trimmed-mean", "--data", "gone.csv"], "gone.csv: there is no such file"),
        (["check", "trimmed-mean", "--model", "."], "does not accept --model; it accepts --data"),
        (["check", "trimmed-mean", "--with", "mine"], "must read NAME=module:function"),
        (["check", "trimmed-mean", "--with", "mine=gone:fit"], "No module named 'gone'"),
        (["check", "trimmed-mean", "--with", "mine=json:gone"], "has no attribute 'gone'"),
        (["check", "trimmed-mean", "--with", "mine=json:__name__"], "is a str, not a function"),
        (["check", "trimmed-mean", "--with", "mean=json:loads"], "has an arm of that name"),
        (["check", "trimmed-mean", "--storage", "oracle://x"], "oracle"),
        (["check", "trimmed-mean", "--storage", "sqlite:///no/such/folder/x.db"], "no/such/folder"),
        (["check"], "Missing argument"),
        (["chekc"], "No such command 'chekc'"),
        (["check", "trimmed-mean", "--bugdet", "quick"], "No such option"),
        (["use", "trimmed-mean", "x.csv"], "has no command of its own"),
        (["export", "--storage", "gone.db"], "there is no such file"),
        (["new", "astrology", "signs"], "field 'astrology' is none of"),
        (["new", "statistics", "Two Words"], "lower-case words joined by hyphens"),
        (["new", "statistics", "fine"], "no checkout of assay"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_users_mistake_is_one_line_and_exit_code_2(assay, arguments, words):
    if arguments[:2] == ["check", "trimmed-mean"] and "--budget" not in arguments:
        arguments = [*arguments, "--budget", "smoke"]
    assert words in one_line(assay(*arguments, code=2))


def test_foreign_and_damaged_storages_are_left_alone(assay, tmp_path):
    (tmp_path / "text.db").write_text("this is no database, but long enough to look like one " * 50)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("create table customers (name text)")
    other.commit()
    other.close()
    for name in ("text.db", "other.db"):
        before = (tmp_path / name).read_bytes()
        line = one_line(assay("check", "trimmed-mean", "--budget", "smoke", "--storage", f"sqlite:///{name}", code=2))
        assert name in line
        assert (tmp_path / name).read_bytes() == before


def test_debug_shows_the_traceback(plug_in):
    done = subprocess.run(
        [sys.executable, "-c", "from assay.cli import main; main()", "show", "nothing", "--debug"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(("ending", "code"), [(KeyboardInterrupt(), 130), (typer.Exit(3), 3), (typer.Exit(0), 0)])
def test_use_ends_with_the_code_of_the_methods_command(monkeypatch, ending, code):
    method = typer.Typer()

    @method.command()
    def run():
        raise ending

    monkeypatch.setattr("assay.catalog.load_use", lambda card: method)
    assert CliRunner().invoke(cli.app, ["use", "carve"]).exit_code == code


def test_version(assay):
    from assay import __version__

    assert assay("--version").stdout.strip() == f"assay {__version__}"


def test_what_your_arm_does_to_its_process_does_not_reach_the_others(assay, tmp_path):
    (tmp_path / "spoiler.py").write_text(
        "import numpy as np\nimport scipy.stats\nimport trimmed_mean.location as location\n"
        "def fit(given, seed):\n    scipy.stats.trim_mean = lambda *a, **k: np.full(5, 99.0)\n"
        "    location.stats.trim_mean = scipy.stats.trim_mean\n    return given[0]\n"
    )
    plain = json.loads(check(assay, "--json").stdout)[0]["cells"]
    check(assay, "--with", "bad=spoiler:fit", "--fresh")
    after = json.loads(check(assay, "--json").stdout)[0]["cells"]
    assert [c["metrics"] for c in plain] == [c["metrics"] for c in after]


def test_markup_and_line_breaks_in_messages_are_printed_as_they_are(assay, tmp_path):
    (tmp_path / "odd.py").write_text("def fit(given, seed):\n    raise ValueError('[/bold] [red]x\\n\\x1b[31mred')\n")
    text = check(assay, "--with", "odd[=odd:fit", code=2).stderr
    assert "must read NAME" in text
    text = check(assay, "--with", "odd=odd:fit").stdout
    assert "[/bold] [red]x" in text
    assert "\x1b" not in text


def test_a_terminal_that_knows_no_unicode_still_gets_the_table(assay):
    done = check(assay, env={"PYTHONIOENCODING": "ascii"})
    assert "? supported" in done.stdout
    json.loads(check(assay, "--json", env={"PYTHONIOENCODING": "ascii"}).stdout)


def test_an_interrupted_check_says_how_to_go_on(plug_in, tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef fit(given, seed):\n    time.sleep(1)\n    return given[0]\n")
    command = [
        sys.executable,
        "-c",
        "from assay.cli import main; main()",
        "check",
        "trimmed-mean",
        "--with",
        "s=slow:fit",
    ]
    environment = os.environ | {"PYTHONPATH": str(plug_in)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (tmp_path / "assay.db").exists():
        time.sleep(0.2)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=30)
    assert process.returncode == 130
    assert words.strip().endswith("assay: interrupted; finished cells are stored, the same command goes on from there")


def test_dry_run_makes_no_storage(assay, tmp_path):
    check(assay, "--dry-run")
    assert not (tmp_path / "r.db").exists()


def test_failed_cells_that_are_stored_are_counted_and_told_how_to_retry(assay, tmp_path):
    (tmp_path / "bad.py").write_text("def fit(given, seed):\n    raise ValueError\n")
    check(assay, "--with", "bad=bad:fit")
    done = check(assay, "--with", "bad=bad:fit")
    assert "35 of 35 cells, 5 failed" in done.stderr
    assert "--retry runs them again" in done.stdout
