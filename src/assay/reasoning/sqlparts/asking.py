"""Ask a database through a model: several queries are written, run safely, and the one most agree with is taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from assay.errors import InputError
from assay.parts.trl import completion_text

from .checks import must_be
from .completion import parse_completion
from .database import Rows, SafeDatabase, SqlError
from .execution import same_rows
from .matching import tree_score
from .normal_form import canonical
from .prompts import WAYS, Ways, prompt
from .tree import Tree

if TYPE_CHECKING:
    from assay.parts.chat import Chat, Failure

Consensus = Literal["mcs", "execution"]


@dataclass(frozen=True)
class Vote:
    """One sample of the model.

    Attributes
    ----------
    sql
        Its query, or None where it wrote none.
    parts
        Its components.
    rows
        What running it gave, or the error; None without a query.
    agreement
        Mean score of its tree with those of the other samples that run, from 0 to 1; with none, 1 if it runs itself.
    same
        How many samples give the same rows, itself included; 0 where it fails.
    completion
        All that it wrote.
    """

    sql: str | None
    parts: tuple[str, ...]
    rows: Rows | SqlError | None
    agreement: float
    same: int
    completion: str = ""


@dataclass(frozen=True)
class Answer:
    """An answer to a question.

    Attributes
    ----------
    sql
        The query that was chosen; None where no sample had one.
    rows
        What it gave; an error where no sample ran, None where there is no query.
    parts
        The components that were written before it.
    votes
        All samples, in the model's order.
    completion
        All that the chosen sample wrote; empty without samples.
    """

    sql: str | None
    rows: Rows | SqlError | None
    parts: tuple[str, ...]
    votes: tuple[Vote, ...]
    completion: str = ""


class Asker:
    """Ask a database in words, through a language model.

    What the model writes runs on a :class:`SafeDatabase` and nowhere else. Nobody knows the right query: of several
    samples that run, the one is taken that is nearest to all others.

    Parameters
    ----------
    chat
        The model, a :class:`assay.parts.chat.Chat`.
    db
        The database.
    mode
        ``"parts"``: the model writes the parts first; ``"direct"``: the query at once.
    n
        Samples a question.
    consensus
        ``"mcs"``: the query whose tree is nearest to the others' on average, then the one whose rows most others share;
        ``"execution"``: the other way round; None: the first that the model wrote, whether it runs or not.
    temperature
        Of the samples; by default 0 for one and 0.7 for several.
    max_tokens
        Of a reply.
    seed
        Sent with the request; not every endpoint honours it.

    Raises
    ------
    InputError
        For another mode or consensus, or ``n`` below 1.

    Notes
    -----
    Without gold, the nearest on average is the choice of least expected loss under the samples.
    """

    def __init__(
        self,
        chat: Chat,
        db: SafeDatabase,
        *,
        mode: Ways = "parts",
        n: int = 1,
        consensus: Consensus | None = "mcs",
        temperature: float | None = None,
        max_tokens: int | None = 2000,
        seed: int | None = None,
    ) -> None:
        if mode not in WAYS:
            raise InputError(f"mode must be 'parts' or 'direct', got {mode!r}")
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 100:
            raise InputError(f"n must be a whole number from 1 to 100, got {n!r}")
        if consensus not in ("mcs", "execution", None):
            raise InputError(f"consensus must be 'mcs', 'execution' or None, got {consensus!r}")
        must_be("db", db, SafeDatabase, "a SafeDatabase")
        self.chat, self.db, self.mode, self.n, self.consensus = chat, db, mode, n, consensus
        self.temperature = (0.0 if n == 1 else 0.7) if temperature is None else temperature
        self.max_tokens, self.seed = max_tokens, seed
        self._schema_text = db.schema_text()

    def ask(self, question: str, *, evidence: str = "") -> Answer:
        """Return the answer to one question.

        Parameters
        ----------
        question
            In words.
        evidence
            What else helps: meanings of columns, formulas.

        Raises
        ------
        EndpointError
            When the model does not reply.
        InputError
            For an empty question.
        """
        (found,) = self.ask_many([question], evidence=[evidence])
        if isinstance(found, Answer):
            return found
        raise found.error()

    def ask_many(self, questions: Sequence[str], *, evidence: Sequence[str] | None = None) -> list[Answer | Failure]:
        """Return the answer to each question, or why the model did not reply; several are under way at once.

        Raises
        ------
        EndpointError
            When nothing works at all.
        InputError
            For an empty question, lists of unequal length.
        """
        if isinstance(questions, str):
            raise TypeError("questions must be a list of texts, got one text")
        known = list(evidence) if evidence is not None else [""] * len(questions)
        if len(known) != len(questions):
            raise InputError(f"evidence must have a text for each of {len(questions)} questions, got {len(known)}")
        talks = [
            prompt(question, self._schema_text, mode=self.mode, evidence=more)
            for question, more in zip(questions, known, strict=True)
        ]
        replies = self.chat.complete(
            talks, n=self.n, temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed
        )
        return [
            choose([sample.text for sample in reply.samples], self.db, consensus=self.consensus) if reply.ok else reply
            for reply in replies
        ]


def choose(completions: Sequence[str], db: SafeDatabase, *, consensus: Consensus | None = "mcs") -> Answer:
    """Run each completion's query and take one.

    Parameters
    ----------
    completions
        What a model wrote, one text a sample.
    db, consensus
        As in :class:`Asker`.

    Raises
    ------
    InputError
        For another consensus.
    """
    if consensus not in ("mcs", "execution", None):
        raise InputError(f"consensus must be 'mcs', 'execution' or None, got {consensus!r}")
    if isinstance(completions, str) or not isinstance(completions, Iterable):
        raise TypeError(f"completions must be a list of texts, one a sample, got {type(completions).__name__}")
    must_be("db", db, SafeDatabase, "a SafeDatabase")
    said = [completion_text(text) for text in completions]
    read = [parse_completion(text) for text in said]
    ran: dict[str, Rows | SqlError] = {}
    for one in read:
        if one.sql is not None and one.sql not in ran:
            ran[one.sql] = db.run(one.sql)
    results = [ran[one.sql] if one.sql is not None else None for one in read]
    good = [place for place, rows in enumerate(results) if isinstance(rows, Rows)]
    trees = {place: _tree(read[place].sql or "") for place in good}
    votes = []
    for place, one in enumerate(read):
        rows, agreement, same = results[place], 0.0, 0
        if isinstance(rows, Rows):
            others = [other for other in good if other != place]
            near = [_near(trees[place], trees[o], read[place].sql, read[o].sql) for o in others]
            agreement = sum(near) / len(near) if near else 1.0
            same = 1 + sum(_same(rows, results[o]) for o in others)
        votes.append(Vote(one.sql, one.parts, rows, agreement, same, said[place]))
    if not votes:
        return Answer(None, None, (), ())
    place = _best(votes, consensus) if good and consensus is not None else _first(votes)
    chosen = votes[place]
    return Answer(chosen.sql, chosen.rows, chosen.parts, tuple(votes), chosen.completion)


def _best(votes: Sequence[Vote], consensus: Consensus) -> int:
    """The place of the vote that most agree with; then the shorter query, then the earlier one."""

    def rank(place: int) -> tuple[float, float, float, int]:
        vote = votes[place]
        tree, rows = round(vote.agreement, 9), float(vote.same)
        first, second = (tree, rows) if consensus == "mcs" else (rows, tree)
        return -first, -second, float(len(vote.sql or "")), place

    return min((place for place, vote in enumerate(votes) if vote.same), key=rank)


def _first(votes: Sequence[Vote]) -> int:
    return next((place for place, vote in enumerate(votes) if vote.sql is not None), 0)


def _tree(sql: str) -> Tree | None:
    try:
        tree = canonical(sql)
        tree.flat  # noqa: B018  too large a tree is refused here
    except InputError:
        return None
    return tree


def _near(a: Tree | None, b: Tree | None, x: str | None, y: str | None) -> float:
    """The score of two trees; of texts that only SQLite can read, whether they are the same."""
    if a is None or b is None:
        return float(x == y)
    return tree_score(a, b)


def _same(a: Rows, b: Rows | SqlError | None) -> bool:
    return b is not None and same_rows(a, b, "bag", False)
