"""Instances of the solver HiGHS that print nothing, keep to one thread, and do not mind what other code does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.parts.packages import need

if TYPE_CHECKING:
    import highspy


def silent_highs(why: str = "an optimisation model") -> highspy.Highs:
    """Return a HiGHS instance that prints nothing and works in one thread.

    Parameters
    ----------
    why
        What needs it, for the message of :class:`assay.errors.MissingPart` where highspy is not installed.
    """
    h = need("highspy._core", why)._Highs()  # highspy.Highs prints a banner, and has callbacks that nothing here uses
    h.setOptionValue("output_flag", False)
    h.setOptionValue("parallel", "off")
    h.setOptionValue("threads", 1)
    return h


def solved(h: highspy.Highs) -> highspy.HighsModelStatus:
    """Solve what an instance of :func:`silent_highs` holds; return the model's status.

    HiGHS keeps one pool of threads a process. Where other code has made a larger one already, an instance that asks
    for one thread is refused; then it takes the pool that is there.

    Examples
    --------
    >>> solved(silent_highs()).name
    'kModelEmpty'
    """
    highspy = need("highspy", "an optimisation model")
    if h.run() == highspy.HighsStatus.kError and h.getModelStatus() == highspy.HighsModelStatus.kNotset:
        h.setOptionValue("threads", 0)
        h.run()
    return h.getModelStatus()
