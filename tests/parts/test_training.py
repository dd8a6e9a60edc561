import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from assay.errors import InputError
from assay.parts.training import EarlyStopping, generator, minibatches, progress

NAN = math.nan


@pytest.mark.parametrize(
    ("losses", "patience", "min_delta", "stops_at", "best_step"),
    [
        ([3, 2, 1, 0.5], 1, 0.0, None, 3),
        ([3, 2, 2, 2], 2, 0.0, 3, 1),  # as good is no better
        ([3, 2, 2.5, 1.9, 5, 5], 2, 0.0, 5, 3),
        ([3, 2.95, 2.92, 2.5, 2.45], 2, 0.1, 2, 0),  # less than min_delta is no better
        ([3, NAN, 2, NAN, NAN], 2, 0.0, 4, 2),
        ([NAN, NAN], 2, 0.0, 1, -1),
        ([math.inf, 1.0], 3, 0.0, None, 1),
    ],
)
def test_when_it_is_time_to_stop(losses, patience, min_delta, stops_at, best_step):
    stopping = EarlyStopping(patience, min_delta)
    module = torch.nn.Linear(1, 1)
    stops = [stopping.step(loss, module) for loss in losses]
    assert stops[: stops_at if stops_at is not None else None].count(True) == 0
    if stops_at is not None:
        assert stops[stops_at]
    assert stopping.steps == len(losses)
    if stops_at is None or len(losses) == stops_at + 1:
        assert stopping.best_step == best_step


def test_the_best_state_comes_back_with_its_buffers():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    stopping = EarlyStopping(5)
    net(torch.randn(4, 2))
    stopping.step(torch.tensor(1.0), net)
    best = {name: value.clone() for name, value in net.state_dict().items()}
    for _ in range(3):
        net(torch.randn(4, 2) + 3)
        with torch.no_grad():
            net[0].weight.add_(1.0)
        stopping.step(2.0, net)
    assert not torch.equal(net.state_dict()["1.running_mean"], best["1.running_mean"])
    stopping.restore(net)
    for name, value in net.state_dict().items():
        assert torch.equal(value, best[name]), name


def test_there_is_nothing_to_go_back_to():
    stopping = EarlyStopping(1)
    with pytest.raises(RuntimeError, match="none of 0 steps"):
        stopping.restore(torch.nn.Linear(1, 1))
    stopping.step(NAN, torch.nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="none of 1 steps kept a state: no loss was a finite number"):
        stopping.restore(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("patience", [0, -1, 1.5, True, "3", None])
def test_patience_is_a_whole_number(patience):
    with pytest.raises(InputError, match="patience must be a whole number of at least 1"):
        EarlyStopping(patience)


@pytest.mark.parametrize("min_delta", [-0.1, NAN, math.inf])
def test_min_delta_is_not_negative(min_delta):
    with pytest.raises(InputError, match="min_delta must be finite and not negative"):
        EarlyStopping(1, min_delta)


def draws(random_state):
    return torch.rand(3, generator=generator(random_state)).tolist()


def test_the_same_seed_gives_the_same_numbers_and_touches_nothing():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert draws(3) == draws(3) == draws(np.int64(3))
    assert draws(3) != draws(4)
    assert draws(np.random.RandomState(1)) == draws(np.random.RandomState(1)) != draws(np.random.RandomState(2))
    assert draws(np.random.default_rng(1)) == draws(np.random.default_rng(1)) != draws(np.random.default_rng(2))
    assert draws(None) != draws(None)
    one = np.random.RandomState(1)
    assert draws(one) != draws(one)  # each use draws another seed
    mine = torch.Generator().manual_seed(1)
    assert generator(mine) is mine
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(InputError, match="random_state must lie between 0 and"):
        generator(seed)


@pytest.mark.parametrize("seed", [1.5, "1", True, object()])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(TypeError, match="random_state must be None, a whole number or a generator"):
        generator(seed)


@pytest.mark.parametrize(("n", "size"), [(10, 3), (9, 3), (2, 5), (1, 1), (7, 1)])
def test_a_pass_has_every_row_once(n, size):
    batches = list(minibatches(n, size, generator(0)))
    assert sorted(torch.cat(batches).tolist()) == list(range(n))
    assert all(len(batch) == size for batch in batches[:-1])
    whole = list(minibatches(n, size, generator(0), drop_last=True))
    assert len(whole) == max(1, n // size)
    assert all(torch.equal(a, b) for a, b in zip(whole, batches, strict=False))
    assert all(len(batch) == min(n, size) for batch in whole)


def test_passes_differ_and_a_seed_repeats_them():
    order = [torch.cat(list(minibatches(50, 7, g))).tolist() for g in (generator(0), generator(0), generator(1))]
    assert order[0] == order[1] != order[2]
    one = generator(0)
    first, second = (torch.cat(list(minibatches(50, 50, one))) for _ in range(2))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(("n", "size"), [(0, 3), (3, 0)])
def test_no_rows_and_no_batches_are_refused(n, size):
    with pytest.raises(ValueError, match="n and size must be at least 1"):
        list(minibatches(n, size, generator(0)))


def test_a_bar_changes_nothing_and_goes_to_the_error_output(capsys, monkeypatch):
    assert list(progress(range(3), 3, "epochs", False)) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    assert list(progress(iter("ab"), None, "epochs", True)) == ["a", "b"]
    assert capsys.readouterr() == ("", "")  # no terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(progress(iter("ab"), None, "epochs", True)) == ["a", "b"]
    out, err = capsys.readouterr()
    assert out == ""
    assert "epochs" in err


def test_without_a_bar_nothing_is_imported():
    program = (
        "import sys; from assay.parts.training import progress; list(progress([1], 1, 'x', False)); "
        "print({'rich', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
