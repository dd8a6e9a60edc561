"""What can go wrong in a conversion besides bad input."""

from assay.errors import InputError


class UnsupportedModelError(InputError):
    """The model has no feed-forward layers of a known kind."""


class ConversionError(RuntimeError):
    """Training a layer failed; the model is as it was before.

    Attributes
    ----------
    layer
        The layer's number; ``None`` in the global stage.
    step
        The step at which the loss was no finite number.
    """

    def __init__(self, message: str, layer: int | None, step: int) -> None:
        super().__init__(message)
        self.layer = layer
        self.step = step

    def __reduce__(self) -> tuple[type, tuple[str, int | None, int]]:
        return type(self), (str(self), self.layer, self.step)
