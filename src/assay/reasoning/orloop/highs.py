"""HiGHS instances that print nothing, keep to one thread, and do not mind what other code does with HiGHS."""

from __future__ import annotations

import highspy
from highspy import _core


def silent_highs() -> highspy.Highs:
    """Return a HiGHS instance that prints nothing and works in one thread."""
    h = _core._Highs()  # highspy.Highs prints a banner, and has callbacks that nothing here uses
    h.setOptionValue("output_flag", False)
    h.setOptionValue("parallel", "off")
    h.setOptionValue("threads", 1)
    return h


def run(h: highspy.Highs) -> highspy.HighsModelStatus:
    """Solve what an instance of :func:`silent_highs` holds; return the model's status.

    HiGHS keeps one pool of threads a process. Where other code has made a larger one already, an instance that asks
    for one thread is refused; then it takes the pool that is there.
    """
    if h.run() == highspy.HighsStatus.kError and h.getModelStatus() == highspy.HighsModelStatus.kNotset:
        h.setOptionValue("threads", 0)
        h.run()
    return h.getModelStatus()
