"""The bag loss: the mean prediction of a bag against its proportions."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assay.errors import InputError


def bag_means(
    values: Float[Tensor, "rows classes"], bag_index: Int[Tensor, " rows"], bags: int
) -> Float[Tensor, "bags classes"]:
    """Mean of the rows of each bag; rows lie in any order, and every bag has at least one."""
    sums = values.new_zeros(bags, values.shape[1]).index_add(0, bag_index, values)
    counts = torch.bincount(bag_index, minlength=bags).to(values.dtype)
    return sums / counts[:, None]


def bag_loss(
    logits: Float[Tensor, "rows classes"],
    bag_index: Int[Tensor, " rows"],
    proportions: Float[Tensor, "bags classes"],
    *,
    eps: float = 1e-7,
    class_weight: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    r"""Cross-entropy between the proportions of bags and the mean predictions of their rows, of many bags at once.

    .. math:: L = -\frac{1}{B} \sum_b \sum_k w_k \pi_{bk} \log\Bigl(\frac{1}{n_b} \sum_{i \in b}
              \mathrm{softmax}(f(x_i))_k + \varepsilon\Bigr)

    For a bag of one row with one class it is that row's cross-entropy.

    Parameters
    ----------
    logits
        (n, K) of the rows.
    bag_index
        (n,) int64, the bag of each row, 0 … B − 1, in any order.
    proportions
        (B, K), rows sum to 1.
    eps
        Keeps the logarithm finite; 0 is allowed.
    class_weight
        (K,) factors of the classes; None means 1.

    Returns
    -------
    Tensor
        Scalar, differentiable in ``logits``; rows and bags may be permuted.

    Raises
    ------
    InputError
        For shapes or types of numbers that do not fit, a bag without rows, an index outside 0 … B − 1, or proportions
        that are negative or not finite.
    TypeError
        For what is no tensor.

    References
    ----------
    Ardehaly and Culotta, "Co-training for Demographic Classification Using Deep Learning from Label Proportions",
    ICDM workshops 2017 (DLLP).

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    >>> round(float(bag_loss(logits, torch.tensor([0, 0]), torch.tensor([[0.75, 0.25]]))), 7)
    0.5709819
    """
    tensors = (("logits", logits), ("bag_index", bag_index), ("proportions", proportions))
    for name, given in (*tensors, *([] if class_weight is None else [("class_weight", class_weight)])):
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(given).__name__}")
    if logits.ndim != 2 or bag_index.shape != logits.shape[:1]:
        raise InputError(
            f"logits must be (rows, classes) and bag_index (rows,), got shapes {tuple(logits.shape)} and "
            f"{tuple(bag_index.shape)}"
        )
    if not logits.is_floating_point():
        raise InputError(f"logits must be floating-point numbers, got {logits.dtype}")
    if bag_index.dtype not in (torch.int64, torch.int32):
        raise InputError(f"bag_index must be whole numbers (int64), got {bag_index.dtype}")
    if class_weight is not None and class_weight.shape != logits.shape[1:]:
        raise InputError(f"class_weight must be ({logits.shape[1]},), got shape {tuple(class_weight.shape)}")
    if not eps >= 0:
        raise InputError(f"eps must not be negative, got {eps}")
    if proportions.ndim != 2 or proportions.shape[1] != logits.shape[1]:
        raise InputError(
            f"proportions must be (bags, {logits.shape[1]}), a column a class, got shape {tuple(proportions.shape)}"
        )
    bags = len(proportions)
    if bags == 0:
        raise InputError("proportions must hold at least one bag")
    if not bool((proportions.isfinite() & (proportions >= 0)).all()):
        raise InputError("proportions must be finite and not negative")
    if bool(((bag_index < 0) | (bag_index >= bags)).any()):
        raise InputError(f"bag_index must lie in 0 … {bags - 1}, one number for each row of proportions")
    empty = torch.nonzero(torch.bincount(bag_index, minlength=bags) == 0)
    if len(empty):
        raise InputError(f"bag {int(empty[0])} of proportions has no rows in bag_index")
    return unchecked_bag_loss(logits, bag_index, proportions, eps=eps, class_weight=class_weight)


def unchecked_bag_loss(
    logits: Float[Tensor, "rows classes"],
    bag_index: Int[Tensor, " rows"],
    proportions: Float[Tensor, "bags classes"],
    *,
    eps: float = 1e-7,
    class_weight: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    """:func:`bag_loss` for a training loop, whose bags are known to be right."""
    predicted = logits.softmax(dim=1)
    if len(proportions) == 1:
        mean = predicted.mean(dim=0, keepdim=True)
    else:
        mean = bag_means(predicted, bag_index, len(proportions))
    weighted = proportions if class_weight is None else proportions * class_weight
    likely = mean + eps
    if eps == 0:  # 0 · log 0 is 0 here
        likely = likely.clamp_min(torch.finfo(mean.dtype).tiny)
    return -(weighted * likely.log()).sum() / len(proportions)
