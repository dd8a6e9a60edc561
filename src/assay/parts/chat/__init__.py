"""A client of any endpoint that speaks the protocol of OpenAI's chat completions, in the cloud or on this machine."""

from assay.parts.chat.client import Chat, Timeouts
from assay.parts.chat.replies import Failure, Reply, Sample, Usage, total_usage

__all__ = ["Chat", "Failure", "Reply", "Sample", "Timeouts", "Usage", "total_usage"]
