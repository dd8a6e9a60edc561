"""The worked examples: each page's code runs, prints what the page shows, and what the page says in words holds."""

from pathlib import Path

import numpy as np
import pages
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
# Clustering sums in another order on another machine: what these pages measure may differ, what they say may not.
MEASURED = {"cure": 3, "lbw-cbo": 3}


def clkd(made):
    mean = made["found"].groupby("women").mean()
    assert mean.loc[40, "clkd"] > max(mean.loc[40, "study alone"], mean.loc[40, "index alone"])
    gain = mean["clkd"] - mean["study alone"]
    assert gain[40] > gain[150]


def cprd(made):
    assert made["test"].p > 0.05 > made["test"].p_chi2
    best = made["best"]
    assert best.iloc[0] - best.iloc[4] < 2 * np.sqrt(2) * made["ranker"].std_err_[best.index].mean()
    assert made["audit"].scale_lo > 1


def cure(made):
    table = made["table"]
    assert table.loc["CURE", "all"] > table.loc["k-means with labels", "all"] + 0.03
    assert table.loc["CURE", "known"] > 0.9
    assert (made["found"].labels_[made["labelled"]] == made["y"][made["labelled"]]).all()
    assert 6 <= made["guess"].n_classes_ <= 14
    assert made["printed"][4].startswith("True")


def dp_smk(made):
    result = made["result"]
    assert result.cost <= 4
    assert result.ledger["rho"].sum() <= result.rho * (1 + 1e-12)
    assert made["found"].eps_lower > 1  # the last one cheats


def geocode(made):
    problems = made["problems"]
    assert [problem.answer.text() for problem in problems.values()] == ["60°", "52°", "100°", "5", "65°"]
    assert all(problem.report.ok for problem in problems.values())
    score = made["score"]
    assert score.circle_f1 == 1 > score.point_f1 > score.fidelity > score.annotation == 0
    assert made["printed"][2].startswith("None")


def joint_privileged(made):
    means = made["means"]
    assert (means["coupled"] > means[["W ignored", "two stages"]].max(axis=1) - 0.5).all()


def lbw_cbo(made):
    table = made["table"]
    assert table["exact"].sum() == pytest.approx(1, abs=1e-9)
    assert table["exact"].idxmax() == table["Gaussian"].idxmax() == 1898
    assert table.loc[1896:1900, "Gaussian"].sum() > 0.9
    assert np.allclose(900 + 150 * made["mean"][1:3], [1097.7, 850.0], atol=15)  # the means before and after
    assert made["found"].elbo_ > made["same"].elbo_ + 10


def llp_flow(made):
    right = made["right"]
    assert right["flow"] > right["majority of the bracket"] + 0.15
    assert right["flow"] > right["with the votes"] - 0.05


def mer_dg(made):
    report = made["report"]
    assert (report.loc[0.1, "rankme"] > 1.3 * report.loc[0, "rankme"]).all()
    assert max(made["right"].values()) - min(made["right"].values()) < 0.05
    assert not any(module._forward_hooks for module in made["net"].modules())


def sqlparts(made):
    total = made["graded"]["total"].astype(float)
    assert total["as gold"] == total["in other words"] == 1
    assert total.iloc[6:].max() < total.iloc[:6].min()  # no way around is paid as the least of the honest tries is
    modes = made["modes"]
    assert modes["order forgotten"] == {"bag": False, "bird": True, "suite": False}
    assert modes["names as constants"] == {"bag": True, "bird": True, "suite": False}
    assert made["answer"].sql in (made["queries"]["in other words"], made["queries"]["as gold"])
    assert made["found"].rows == ((34006,),)


def orloop(made):
    assert made["found"].certified
    assert set(made["found"].rows) == {"litres_2", "malic_acid_2"}
    assert made["done"].objective == pytest.approx(made["optimum"])
    others = [
        after.objective
        for edit, after in made["choices"](made["model"], made["found"].rows)
        if after.status == "optimal" and edit != made["done"].edits[0]
    ]
    assert all(abs(objective - made["optimum"]) > 50 for objective in others)
    assert abs(made["guess"].objective - made["optimum"]) > 50


SAYS = {
    "clkd": clkd,
    "cprd": cprd,
    "cure": cure,
    "dp-smk": dp_smk,
    "geocode": geocode,
    "joint-privileged": joint_privileged,
    "lbw-cbo": lbw_cbo,
    "llp-flow": llp_flow,
    "mer-dg": mer_dg,
    "orloop": orloop,
    "sqlparts": sqlparts,
}


def test_every_page_is_here():
    assert {page.stem for page in FOLDER.glob("*.md")} - {"index"} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_the_page_runs_and_is_right(name, tmp_path):
    page = FOLDER / f"{name}.md"
    printed = []

    def say(block, text):
        measured = MEASURED.get(name, 0)
        different = "" if 0 < measured <= len(printed) + 1 else pages.difference(block.text, text)
        printed.append(text)
        assert text.strip(), f"nothing is printed where {name}.md shows\n{block.text}"
        assert not different, (
            f"{different}\n(`python tests/docs/pages.py docs/examples/{name}.md` writes it anew)\n{text}"
        )

    made = pages.run(page.read_text(encoding="utf-8"), tmp_path, say)
    assert printed
    SAYS[name](made | {"printed": printed})
