"""The errors that assay raises on purpose; the command line turns each into one line."""


class InputError(ValueError):
    """What the user gave cannot be used; the message says which input, what it was and what it must be."""


class MissingPart(ImportError):
    """A package, a model or a data set that this work needs is not installed.

    Parameters
    ----------
    what
        What is missing and what needs it, as the start of a sentence.
    install
        The exact line that installs it.
    """

    def __init__(self, what: str, install: str) -> None:
        super().__init__(f"{what}; install it with: {install}")
        self.what = what
        self.install = install

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.install)


class EndpointError(ConnectionError):
    """A chat endpoint cannot be reached, refuses, or answers with something that is no answer."""


def one_line(error: object, most: int = 300) -> str:
    """An error's message, or any text, as one line of at most ``most`` characters that any output can print."""
    try:
        text = str(error)[: 10 * most]
    except Exception:
        text = f"{type(error).__name__} without a readable message"
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= most else text[: most - 1] + "…"
