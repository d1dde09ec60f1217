"""Files that are divided: groups whole, labels balanced, the same examples each time."""

from collections import Counter

from pipeline.downstream.reading.division import divide_examples
from pipeline.downstream.reading.examples import Answer, Example, Gold
from tests.pipeline.downstream.small_work import example


def shares(examples: list[Example]) -> Counter[object]:
    return Counter(example.gold for example in examples)


def test_a_sorted_file_is_divided_with_its_shares_of_labels_tags_or_answers() -> None:
    examples = [example(index, "neg" if index < 60 else "pos") for index in range(100)]
    training, held_out = divide_examples(examples, 0.2)
    assert shares(held_out) == {"neg": 12, "pos": 8} and len(training) == 80
    ids = [int(example.id) for example in held_out]
    assert ids == sorted(ids) and ids[:3] == [1, 7, 10]  # drawn by the seed, in the file's order
    assert {e.id for e in training}.isdisjoint(e.id for e in held_out)
    assert divide_examples(examples, 0.2) == (training, held_out)
    tagged = [example(i, ("O", "B-X") if i < 20 else ("O", "O")) for i in range(100)]
    assert shares(divide_examples(tagged, 0.2)[1]) == {("O", "B-X"): 3, ("O", "O"): 17}
    asked = [example(i, (Answer("x", 0),) if i < 50 else ()) for i in range(100)]
    assert Counter(bool(e.gold) for e in divide_examples(asked, 0.2)[1]) == {True: 10, False: 10}


def test_numbers_are_drawn_from_their_whole_range() -> None:
    examples = [example(index, float(index)) for index in range(200)]
    _, held_out = divide_examples(examples, 0.1)
    per_fifth = Counter(int(float(str(e.gold))) // 40 for e in held_out)
    assert len(held_out) == 20 and {*per_fifth.values()} <= {3, 4, 5}


def test_labels_of_a_few_examples_are_in_both_parts_as_far_as_they_allow() -> None:
    """A share of each would be less than half an example."""
    examples = [example(index, str(index // 3)) for index in range(300)]
    training, held_out = divide_examples(examples, 0.1)
    assert len(held_out) == 30 and max(shares(held_out).values()) == 1
    assert len(shares(training)) == 100
    rare = [*(example(index, "a") for index in range(20)), example(20, "b")]
    _, held_out = divide_examples(rare, 0.9)
    assert "b" not in shares(held_out)  # what is never trained cannot be predicted


def test_groups_stay_whole_and_are_balanced() -> None:
    """Of each author all texts have one label; then mixed labels; then large groups."""
    examples = [example(i, "ab"[i >= 150], f"author {i // 5}") for i in range(200)]
    mixed = [example(i, "ab"[(i % 10) < i // 10], f"article {i // 10}") for i in range(100)]
    for given, share, most in ((examples, 0.2, range(30, 31)), (mixed, 0.3, range(13, 21))):
        training, held_out = divide_examples(given, share)
        assert {e.group for e in training}.isdisjoint(e.group for e in held_out)
        assert len(held_out) == share * len(given) and shares(held_out)["a"] in most  # of 150, 55
    answer: Gold = (Answer("x", 0),)
    large = [example(i, answer, f"article {i // 10}") for i in range(20)]
    for share in (0.1, 0.5, 0.9):  # neither part is empty
        assert [len(part) for part in divide_examples(large, share)] == [10, 10]
        assert divide_examples(large[:10], share)[1] == []
