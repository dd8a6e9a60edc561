import json
from pathlib import Path

import pytest
import sa_merging_models as tiny
import torch
import yaml

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.models.sa_merging import study
from assay.models.sa_merging.lora import merge_lora
from assay.models.sa_merging.own import read_lines, read_suite, score_own
from assay.models.sa_merging.study import STUDY, own
from assay.models.sa_merging.suites import Questions, Suite, embed_rows, fine_tune, mlp, read, write

SMOKE = Budget.SMOKE


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The smoke suite of one seed, in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield STUDY.task("docstrings-4").load(0, SMOKE)


def test_experts_know_their_package_and_the_base_knows_less(made):
    given, suite = made
    assert len(given.experts) == len(suite.questions) == 4
    score = STUDY.task("docstrings-4").score
    base = score(STUDY.arm("base").run(given, 0, SMOKE), suite)
    assert base["changed"] == 0
    assert base["accuracy"] < 1
    assert score(STUDY.arm("experts").run(given, 0, SMOKE), suite)["accuracy"] == 1
    # An expert's own update, on its own questions, is the expert.
    state = suite.experts[2]
    own_share = study.accuracies(suite, state, "test")[2, 0]
    moved = {n: t - suite.base[n] for n, t in state.items()}
    again = study.accuracies(suite, {n: suite.base[n] + moved[n] for n in moved}, "test")[2, 0]
    assert own_share == pytest.approx(again, abs=0.02)


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms if "docstrings-4" in a.tasks])
def test_every_arm_gives_what_can_be_scored(made, arm):
    given, suite = made
    found = STUDY.task("docstrings-4").score(STUDY.arm(arm).run(given, 0, SMOKE), suite)
    assert 0 < found["accuracy"] < 1.5
    if arm == "sa-merging":
        assert found["of_best_scale"] == pytest.approx(found["accuracy"] / found["accuracy_at_best_scale"])
        assert 0 < found["changed"] < 1


def test_training_and_test_questions_are_apart(made):
    _, suite = made
    for asked in suite.questions:
        tune, test = ({tuple(row[:8].tolist()) for row in part[0]} for part in (asked.tune, asked.test))
        assert not tune & test


def test_ablations_differ_from_the_method_in_what_they_say(made):
    given, _ = made
    outputs = {
        name: STUDY.arm(name).run(given, 0, SMOKE)
        for name in ("sa-merging", "plain-sum", "no-consensus", "no-sensitivity", "one-shot", "capped-sum")
    }
    ours = outputs.pop("sa-merging")
    name = "2.weight"
    for other, update in outputs.items():
        assert not torch.equal(ours[name], update[name]), other
    # The cap changes the length alone.
    ratio = ours[name][ours[name] != 0] / outputs["plain-sum"][name][ours[name] != 0]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-3, atol=1e-3)
    changed = {n: int((u[name] != 0).sum()) for n, u in (outputs | {"sa-merging": ours}).items()}
    assert max(changed, key=changed.get) == "capped-sum"


def test_suites_are_kept_whole(tmp_path):
    network = mlp(8)
    state = {n: t.detach() for n, t in network.state_dict().items()}
    x, y = torch.randn(12, 384), torch.arange(12) % 3
    head = torch.randn(3, 256)
    expert = fine_tune(network, embed_rows, x, y, head, 20, 1e-3, 8, torch.Generator().manual_seed(0))
    write(tmp_path, state, [expert], [Questions(head, (x, y), (x, y))])
    suite = read(tmp_path, mlp(8), embed_rows)
    assert isinstance(suite, Suite)
    assert all(torch.equal(suite.base[n], t) for n, t in state.items())
    before, after = (float(study.accuracies(suite, s, "test")[0, 1]) for s in (suite.base, suite.experts[0]))
    assert after < before  # it has learned


def test_budgets_and_claims():
    names = {b: {t.name for t, _ in STUDY.pairs(b)} for b in Budget}
    assert names[SMOKE] == {"docstrings-4"}
    assert names[Budget.QUICK] == {"docstrings-4", "docstrings-8"}
    assert names[Budget.FULL] == {t.name for t in STUDY.tasks}
    assert min(STUDY.seeds.values()) >= 3
    assert STUDY.base_seed == 1000


def test_the_card_has_the_studys_claims_in_order():
    text = Path(study.__file__).with_name("card.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---")[1])
    assert head["name"] == STUDY.name
    assert head["field"] == "models"
    section = text.split("## Claims")[1].split("\n## ")[0]
    listed = [line[2:] for line in section.splitlines() if line.startswith("- ")]
    for line, claim in zip(listed, STUDY.claims, strict=True):
        assert line.startswith(f"{claim.name}: ")


# ---- a user's own models


@pytest.fixture
def users(tmp_path):
    """A base and two experts on disk, each with questions, and the file that names them."""
    base = tiny.build("llama")
    base.save_pretrained(tmp_path / "base")
    rows = []
    for n in (1, 2):
        tiny.expert_of(base, n).save_pretrained(tmp_path / f"e{n}")
        (tmp_path / f"d{n}.jsonl").write_text('{"text": "one two"}\n\n{"text": "three"}\n')
        rows.append({"model": f"e{n}", "data": f"d{n}.jsonl"})
    (tmp_path / "suite.json").write_text(json.dumps(rows))
    return tmp_path


def test_own_models_run_all_rules(users, monkeypatch):
    paths = {"model": users / "base", "data": users / "suite.json"}
    mine = own(paths)
    assert [t.name for t in mine.tasks] == ["yours"]
    assert {"sa-merging", "average", "ties", "dare", "base", "experts"} <= {a.name for a in mine.arms}
    given, suite = mine.tasks[0].load(0, SMOKE)
    for arm in mine.arms:
        output = arm.run(given, 0, SMOKE)
        if arm.name not in ("experts", "base"):
            assert any(bool((t != 0).any()) for t in output.values()), arm.name
    # Scored as quality over the expert's: with both at the expert's own weights that is 1.
    monkeypatch.setattr("assay.models.sa_merging.own.load_tokenizer", lambda folder: None)
    monkeypatch.setattr(
        "assay.models.sa_merging.own._quality", lambda model, _, data: float(model.lm_head.weight.abs().sum())
    )
    assert score_own(None, suite) == {"accuracy": 1.0}
    doubled = {"lm_head.weight": given.base.lm_head.weight.detach().clone()}
    base_size = float(doubled["lm_head.weight"].abs().sum())
    sizes = [float(study.load_model(users / f"e{n}").lm_head.weight.abs().sum()) for n in (1, 2)]
    expected = sum(2 * base_size / size for size in sizes) / 2
    assert score_own(doubled, suite)["accuracy"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("[]", "two experts or more"),
        ('[{"model": "e1"}, {}]', 'expert 1 must have "model" and "data"'),
        ('[{"model": "no", "data": "d1.jsonl"}, {}]', "no is no folder"),
        ('[{"model": "e1", "data": "no.jsonl"}, {}]', "no.jsonl is not there"),
    ],
)
def test_bad_suites(users, text, says):
    (users / "suite.json").write_text(text)
    with pytest.raises(InputError, match=says):
        read_suite(users / "suite.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1 is no JSON"),
        ('{"question": "q", "options": ["a"], "answer": 1}', "line 1 must have"),
        ("", "must hold texts or questions"),
        ('{"text": "a"}\n{"question": "q", "options": ["a"], "answer": 0}', "and not both"),
    ],
)
def test_bad_lines(tmp_path, text, says):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(InputError, match=says):
        read_lines(tmp_path / "x.jsonl")


def test_seeds_judge_by_other_lines(users, monkeypatch):
    (users / "d1.jsonl").write_text("".join(json.dumps({"text": f"line {n}"}) + "\n" for n in range(20)))
    monkeypatch.setattr("assay.models.sa_merging.own.load_tokenizer", lambda folder: None)
    seen = []
    monkeypatch.setattr("assay.models.sa_merging.own._quality", lambda model, _, lines: seen.append(lines) or 1.0)
    task = own({"model": users / "base", "data": users / "suite.json"}).tasks[0]
    for seed in (1, 1, 2):
        given, suite = task.load(seed, SMOKE)
        task.score(STUDY.arm("base").run(given, seed, SMOKE), suite)
    one, again, other = seen[0], seen[4], seen[8]
    assert one == seen[1] == again  # the expert and the merged model, and the same seed once more
    assert len(other) == 20
    assert sorted(one) != sorted(other)


def test_own_needs_both():
    with pytest.raises(InputError, match="as --model and a JSON file"):
        own({"model": Path(".")})


def test_adapters_count_their_ranks(tmp_path):
    from test_sa_lora import saved

    from assay.models.sa_merging.language import merged_adapter

    folders = saved(tmp_path)
    tiny.build("llama").save_pretrained(tmp_path / "base")
    assert merged_adapter(tmp_path / "base", folders, 1.0).ranks_out == 0
    half = merged_adapter(tmp_path / "base", folders, 0.5)
    assert half.ranks_out == 0.5
    direct = merge_lora(tmp_path / "base", folders, keep=0.5, to=tmp_path / "direct", device="cpu")
    assert half.files["adapter_model.safetensors"] == (direct / "adapter_model.safetensors").read_bytes()
