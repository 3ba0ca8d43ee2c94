import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.upstream.ts.torch_handler.contractions import CONTRACTION_MAP
from shoal.upstream.ts.torch_handler.text_classifier import TextClassifier
from shoal.upstream.ts.utils.util import PredictionException
from shoal.upstream.ts.utils.weights import ALLOW_PICKLE
from shoal.upstream.ts.utils.words import basic_english, expanded, ngrams, vocabulary
from tests.unit.upstream.torch_handler.cases import CLEANED, CLEANERS, DATA, VOCABULARY, write_model
from tests.unit.upstream.torch_handler.serving import context

RECORDED = json.loads((DATA / "cleaning.json").read_text())


@pytest.mark.parametrize("step", CLEANERS)
@pytest.mark.parametrize("text", CLEANED)
def test_text_is_cleaned_as_torchserve_cleans_it(text: str, step: str) -> None:
    assert getattr(TextClassifier(), step)(text) == RECORDED[text][step]


def test_the_older_spelling_of_a_step_works() -> None:
    assert TextClassifier()._remove_puncutation("a, b!") == "a b"


@given(st.text())
def test_no_apostrophe_is_left(text: str) -> None:
    assert "'" not in expanded(text)


@pytest.mark.parametrize("short", CONTRACTION_MAP)
def test_every_contraction_is_written_out_alone_and_in_a_sentence(short: str) -> None:
    whole = short[0].replace("'", "") + CONTRACTION_MAP[short][1:]

    assert expanded(f"so {short} now") == f"so {whole} now"
    assert expanded(short.upper())[1:] == whole.capitalize()[1:] or short.startswith("'")


@given(st.text(alphabet=" abcAB.,'\"();:!?\n\t"))
def test_tokens_are_lower_case_words_or_single_marks(text: str) -> None:
    for token in basic_english(text):
        assert token.isalpha() == token.islower()
        assert token.isalpha() or token in set("'.,()!?")


def test_a_line_break_of_html_parts_words() -> None:
    assert basic_english("One<br />two") == ["one", "two"]


@given(st.lists(st.sampled_from("abc"), max_size=8), st.integers(1, 4))
def test_every_run_of_words_appears_once_for_each_place(tokens: list[str], longest: int) -> None:
    made = list(ngrams(tokens, longest))

    assert made[: len(tokens)] == tokens
    assert len(made) == sum(max(len(tokens) - length + 1, 0) for length in range(1, longest + 1))
    for run in made:
        assert run in " ".join(tokens)


def loaded(folder: Path, stored: Any = VOCABULARY, name: str = "source_vocab.pt", **described: str) -> TextClassifier:
    torch.save(stored, folder / name)
    handler = TextClassifier()
    handler.initialize(context(folder, {**write_model(folder, "words"), **described}))
    return handler


def test_numbers_are_those_of_words_and_of_pairs(tmp_path: Path) -> None:
    numbers, tokens = loaded(tmp_path).preprocess([{"data": "The cat, sat."}])

    assert tokens == ["the", "cat", "sat"]
    assert numbers.tolist() == [1, 2, 3, 6, 7]


def test_words_that_are_not_known_count_as_unknown(tmp_path: Path) -> None:
    numbers, tokens = loaded(tmp_path).preprocess([{"data": "the dog"}])

    assert numbers.tolist() == [1, 0, 0]
    assert tokens == ["the", "dog"]


def test_words_are_lower_case_whatever_cuts_the_text(tmp_path: Path) -> None:
    handler = loaded(tmp_path)
    handler.tokenizer = str.split

    assert handler.preprocess([{"data": "The CAT"}])[1] == ["the", "cat"]


def test_a_vocabulary_may_be_a_list(tmp_path: Path) -> None:
    numbers, _ = loaded(tmp_path, ["<unk>", "cat", "the"]).preprocess([{"data": "the cat"}])

    assert numbers.tolist() == [2, 1, 0]


def test_without_a_number_for_unknown_words_the_word_is_named(tmp_path: Path) -> None:
    handler = loaded(tmp_path, {"the": 0})

    with pytest.raises(PredictionException, match=r"'dog' is not in the vocabulary.*<unk>"):
        handler.preprocess([{"data": "the dog"}])


def test_several_rows_are_each_answered_as_they_would_be_alone(tmp_path: Path) -> None:
    handler = loaded(tmp_path)
    rows = [{"data": "the cat sat"}, {"body": b"not"}, {"data": "cat"}]

    together = handler.handle(rows, context(tmp_path, rows=3))

    assert together == [handler.handle([row], context(tmp_path))[0] for row in rows]
    assert len({str(answer) for answer in together}) == 3
    assert [sum(answer.values()) for answer in together] == pytest.approx([1, 1, 1])


def test_several_rows_are_each_explained(tmp_path: Path) -> None:
    handler = loaded(tmp_path)

    answers = handler.handle(
        [{"data": "the cat"}, {"data": "not"}], context(tmp_path, rows=2, headers={"explain": "True"})
    )

    assert [answer["words"] for answer in answers] == [["the", "cat"], ["not"]]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({}, "row 0 of the batch holds no text"),
        ({"data": ""}, "row 0 of the batch holds no text"),
        ({"body": b"\xff\xfe"}, "row 0 of the batch is no UTF-8 text"),
        ({"body": {"text": "x"}}, "row 0 of the batch holds a dict, not text"),
    ],
)
def test_a_row_that_is_no_text_is_named(tmp_path: Path, row: Any, complaint: str) -> None:
    with pytest.raises(PredictionException, match=complaint) as refused:
        loaded(tmp_path).preprocess([row])
    assert refused.value.error_code == 503


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    handler = TextClassifier()

    with pytest.raises(FileNotFoundError, match=r"Missing the source_vocab file: the archive has no source_vocab.pt"):
        handler.initialize(context(tmp_path, write_model(tmp_path, "words")))
    assert not handler.initialized


def test_the_manifest_may_name_the_vocabulary_and_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    handler = loaded(tmp_path, name="words.pt", sourceVocab="words.pt")

    assert handler.source_vocab["cat"] == 2
    assert handler.get_source_vocab_path(context(tmp_path, {"sourceVocab": "../x/words.pt"})) == str(
        tmp_path / "words.pt"
    )


class Numbers:
    """A vocabulary that is an object, as torchtext's is."""

    def __getitem__(self, word: str) -> int:
        return len(word)


def test_a_vocabulary_that_is_an_object_needs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match=r"source_vocab.pt carries code .*Numbers.*allow_pickle"):
        loaded(tmp_path, Numbers())

    monkeypatch.setenv(ALLOW_PICKLE, "1")
    numbers, _ = loaded(tmp_path, Numbers()).preprocess([{"data": "the horse"}])
    assert numbers.tolist() == [3, 5, 9]


def test_what_is_no_vocabulary_is_refused() -> None:
    with pytest.raises(TypeError, match=r"v.pt holds a float; a dict of word to number"):
        vocabulary(1.5, "v.pt")


def test_a_model_without_an_embedding_answers_and_cannot_be_explained(tmp_path: Path) -> None:
    handler = loaded(tmp_path)
    handler.lig = None

    with pytest.raises(TypeError, match="a layer called `embedding`"):
        handler.handle([{"data": "the cat"}], context(tmp_path, headers={"explain": "True"}))


def test_marks_of_byte_pair_tokens_are_taken_off() -> None:
    assert TextClassifier().get_word_token(["\u0120the", "cat"]) == ["the", "cat"]


@pytest.mark.parametrize("shape", [(4,), (1, 4), (5, 3), (1, 5, 3)])
def test_attributions_come_to_length_one(shape: tuple[int, ...]) -> None:
    made = TextClassifier().summarize_attributions(torch.arange(float(torch.Size(shape).numel())).reshape(shape))

    assert made.shape == shape
    assert float(made.sum(dim=-1).norm()) == pytest.approx(1.0)
