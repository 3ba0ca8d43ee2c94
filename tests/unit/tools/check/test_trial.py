from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.tools.check.messages import RunThese, Verdict, Verdicts
from shoal.tools.check.trial import MOST_TOLD, Checked, Trial, name_of, orders
from shoal.tools.profile.measure import Gone
from shoal.tools.samples import Sample

Rule = Callable[[int, Sequence[int]], Verdict]


class FakeHolder:
    """A model that was loaded; `rule` says what each place of a batch gets, after its first time alone."""

    def __init__(self, rule: Rule, *, refused: Sequence[int] = (), dies_at: int = 0, are_alike: bool = False) -> None:
        self.asked: list[list[int]] = []
        self._rule = rule
        self._refused = refused
        self._dies_at = dies_at
        self._alike = are_alike
        self._known: set[int] = set()

    def ask(self, word: RunThese, timeout: float) -> Verdicts:
        order = word.samples
        self.asked.append(order)
        if not order:
            return Verdicts([Verdict("same", "alike" if self._alike else "")])
        if len(order) == self._dies_at:
            raise Gone("its process was killed")
        if len(order) == 1 and order[0] not in self._known:
            self._known.add(order[0])
            return Verdicts([Verdict("refused", "no") if order[0] in self._refused else Verdict("answered")])
        return Verdicts([self._rule(place, order) for place in range(len(order))])


def same(place: int, order: Sequence[int]) -> Verdict:
    return Verdict("same")


def tried(rule: Rule = same, samples: int = 3, sizes: Sequence[int] = (2, 4), within: float = 60.0, **more: Any) -> Any:
    holder = FakeHolder(rule, **more)
    found = Checked("m.py")
    bodies = [Sample(b'"%d"' % number, "", "text") for number in range(samples)]
    Trial(holder, bodies, found, within=within).run(sizes, 1)  # type: ignore[arg-type]
    return found, holder


def test_every_sample_is_asked_alone_twice_and_then_in_every_size() -> None:
    found, holder = tried()
    assert found.is_fine
    assert holder.asked[:7] == [[0], [1], [2], [0], [1], [2], []]
    assert [(row.size, row.answers, row.wrong) for row in found.rows] == [
        (1, 3, 0),
        (2, 2 * found.rows[1].batches, 0),
        (4, 4 * found.rows[2].batches, 0),
    ]


def test_what_is_not_as_alone_is_counted_and_a_few_are_told() -> None:
    found, _ = tried(lambda place, order: Verdict("mixed", of=0) if len(order) == 4 else Verdict("same"))
    assert not found.is_fine
    assert [row.wrong for row in found.rows] == [0, 0, found.rows[2].answers]
    assert len(found.differences) == MOST_TOLD
    assert found.differences[0].text == 'it got the answer of input 1 ("0")'
    assert found.differences[0].place == 1 and len(found.differences[0].order) == 4


def test_an_answer_that_changes_alone_is_not_fine() -> None:
    found, _ = tried(lambda place, order: Verdict("other", "answer is 2, alone 1"), sizes=())
    assert found.rows[0].wrong == 3
    assert not found.is_fine


def test_samples_that_fail_alone_are_left_out() -> None:
    found, holder = tried(refused=[1])
    assert found.refused == ['input 2 ("1"): no']
    assert all(1 not in order for order in holder.asked[3:])
    assert found.is_fine

    found, holder = tried(refused=[0, 1, 2])
    assert not found.is_fine
    assert holder.asked == [[0], [1], [2]]


def test_a_model_that_dies_is_not_fine_and_what_was_found_before_stays() -> None:
    found, _ = tried(dies_at=4)
    assert [row.wrong for row in found.rows] == [0, 0, 1]
    assert found.notes == ["batch size 4: its process was killed"]
    assert not found.is_fine
    assert not tried(dies_at=1)[0].is_fine


def test_time_that_is_up_is_said() -> None:
    found, holder = tried(within=-1.0)
    assert holder.asked == []
    assert "time" in found.notes[0]
    assert not found.is_fine


def test_samples_that_are_answered_alike_are_noted() -> None:
    assert "mixed-up answers could not be seen" in tried(are_alike=True)[0].notes[0]


def test_a_sample_is_called_by_its_file_or_by_itself() -> None:
    assert name_of(Sample(b"x", "", "cat.jpg")) == "cat.jpg"
    assert name_of(Sample(b'{"a":\n 1}', "", "text")) == '{"a": 1}'
    assert len(name_of(Sample(b"x" * 1000, "", "text"))) == 40


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True), st.integers(2, 20), st.integers())
def test_orders_are_of_the_size_of_these_samples_and_none_comes_twice(samples: list[int], size: int, seed: int) -> None:
    found = list(orders(samples, size, Random(seed)))
    assert all(len(order) == size and set(order) <= set(samples) for order in found)
    assert len({tuple(order) for order in found}) == len(found)
    if size >= len(samples):
        assert set(found[0]) == set(samples)
    if len(samples) > 1:
        assert len(found) > 1
