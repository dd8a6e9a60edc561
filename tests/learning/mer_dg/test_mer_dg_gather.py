"""Two processes with half the rows each do what one process with all rows does."""

import os
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from assay.learning.mer_dg import FeatureTap, MERLoss
from assay.learning.mer_dg.gather import gathered

SIZES = (5, 8)
"""Rows of the two processes: they may differ."""

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def rows():
    return torch.randn((sum(SIZES), 6), generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def worker(rank, folder):
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    try:
        model = DistributedDataParallel(encoder())
        mine = rows().split(SIZES)[rank]
        tap = FeatureTap(model, {"a": "2"}, loss=MERLoss(lam=0.5, gather=True))
        output = model(mine)
        # A base loss whose mean over processes is the mean over all rows, and the loss on all of them.
        base = output.square().sum() * 2 / sum(SIZES)
        loss = tap.loss()
        (base + loss).backward()
        apart = MERLoss(lam=0.5)(output.detach())
        refused = ""
        try:
            MERLoss(gather=True)({"bad": torch.full((2, 2), float("nan") if rank else 1.0)})
        except ValueError as error:
            refused = str(error)
        torch.save(
            {
                "loss": float(loss.detach()),
                "apart": float(apart),
                "gradients": [p.grad for p in model.parameters()],
                "refused": refused,
            },
            Path(folder) / f"{rank}.pt",
        )
    finally:
        dist.destroy_process_group()


def test_two_processes_are_as_one(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (folder,), nprocs=2)
        told = [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert os.getenv("OMP_NUM_THREADS") == "1"
    model = encoder()
    output = model(rows())
    expected = MERLoss(lam=0.5)(output)
    (output.square().sum() / sum(SIZES) + expected).backward()
    for one in told:
        assert one["loss"] == pytest.approx(float(expected.detach()), rel=1e-9)
        assert abs(one["apart"] - float(expected.detach())) > 1e-3
        for got, wanted in zip(one["gradients"], model.parameters(), strict=True):
            torch.testing.assert_close(got, wanted.grad, rtol=1e-8, atol=1e-10)
        # NaN in one process stops both: neither is left waiting.
        assert "'bad' holds NaN" in one["refused"]


def test_alone_nothing_is_gathered():
    z = torch.ones((3, 2))
    assert gathered(z) is z
