"""The phases of a run; test_feed.py checks what they read, one after the other."""

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.config import data_settings
from pipeline.config.run import Run
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.data.shards.manifest import TRAIN, VALIDATION
from pipeline.loading.compatibility import as_read, check_shards, runs_of
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import CYCLE
from pipeline.planning.mixtures import corpus_of, mixture_weights
from pipeline.planning.phases import (
    LATER_ORDER,
    Phase,
    check_lengths,
    check_phases,
    make_phases,
    steps_at_words,
    words_read,
)
from pipeline.recipes import recipe
from tests.pipeline.config.test_data_settings import LaterData
from tests.pipeline.phase_data import drawn_anew, in_languages, of_corpus, of_rate

DRAWN = ["data.mask_mode=per-epoch", "data.duplicates=0"]
PHASE = '{"steps":9,"sequence_length":16,"sequences":8}'


TINY = recipe("roberta_tiny")


def tiny(*settings: str) -> Run:
    return override(TINY, [f"phases=[{PHASE}]", *settings])


def test_the_phases_of_bert_are_those_of_the_paper() -> None:
    """90 % of the steps at 128; a micro-batch holds equally many tokens in both phases."""
    bert = recipe("bert_base_published")
    (begin, end, first), (again, last, second) = runs_of(bert)
    assert (begin, end, again, last) == (0, 900_000, 900_000, 1_000_000)
    assert (first.data.sequence_length, second.data.sequence_length) == (128, 512)
    assert first.batch.sequences == second.batch.sequences == 256
    assert first.batch.per_device == 4 * second.batch.per_device
    assert first.schedule == second.schedule == bert.schedule and first.steps == 1_000_000
    assert runs_of(TINY) == [(0, TINY.steps, TINY)]  # without phases it is one
    grows = tiny("batch.warmup_steps=5", "batch.first_sequences=2")  # in the first phase only
    assert [part.batch.warmup_steps for *_, part in runs_of(grows)] == [5, 0]


def test_shards_belong_to_the_phase_of_their_length(lesson: Path, short: Path) -> None:
    long, small = Dataset.open(lesson), Dataset.open(short)
    run = tiny()
    assert as_read(run, small).data.sequence_length == 16
    check_shards(run, [small, long], "")
    check_lengths(run, [long, small])
    check_lengths(TINY, [small])  # check_shards reports what is wrong with it
    with pytest.raises(DataError, match=r"rate=0\.15, .* 0\.2"):
        check_shards(override(run, ["data.masks.rate=0.2"]), [small, long], "")
    with pytest.raises(DataError, match=r"--set data\.tokenizer=byte-bpe"):
        check_shards(recipe("bert_tiny"), [long], "")
    with pytest.raises(DataError, match="tokenizer sha256"):
        check_shards(run, [small, long], "0" * 64)
    with pytest.raises(ConfigError, match="16 and 32, but no --data"):
        check_lengths(run, [long])
    other = Dataset.open(short)
    other.manifest = replace(small.manifest, sequence_length=24)
    with pytest.raises(ConfigError, match=f"{short}, .* 16; .* 24 and"):
        check_lengths(tiny("phases.0.sequence_length=24"), [long, other, small])
    kept = {name: value for name, value in long.manifest.data.items() if name != "seed"}
    long.manifest = replace(long.manifest, data=kept)
    with pytest.raises(DataError, match=r"without data\.seed, .* 0;"):
        check_shards(TINY, [long], "")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterRun(Run):
    data: LaterData


def test_shards_with_a_later_value_fit_no_run_with_its_legacy_value(
    lesson: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Dataset.open(lesson)
    new.manifest = replace(new.manifest, data=new.manifest.data | {"blanks": 3})
    monkeypatch.setattr(data_settings, "DataSettings", LaterData)
    same = from_dict(LaterRun, to_dict(TINY))
    check_shards(override(same, ["data.blanks=3"]), [new], "")
    with pytest.raises(DataError, match=r"data\.blanks=3, .* 0;"):
        check_shards(same, [new], "")


def changing(*phases: tuple[str, ...], anew: bool = False) -> Run:
    """A run whose earlier phases of three steps have these settings, all of length 32."""
    usual = {"steps": 3, "sequence_length": 32, "sequences": 8}
    listed = json.dumps([usual | {"settings": own} for own in phases])
    return override(TINY, [f"phases={listed}", *DRAWN[: 2 * anew]])


def opened(run: Run, *directories: Path) -> tuple[Phase, ...]:
    """The phases over these directories, checked as at a start."""
    train, held_out = (
        [Dataset.open(path, split) for path in directories] for split in ("train", "validation")
    )
    check_lengths(run, train)
    check_shards(run, train, "")
    check_phases(run, train)
    return make_phases(run, 1, 0, train, held_out)


def orders(*phases: Phase) -> list[int]:
    """The number of each phase's order of samples; all are of sequences of 32."""
    assert {phase.order % LATER_ORDER for phase in phases} == {32}
    return [phase.order // LATER_ORDER for phase in phases]


def test_masks_that_are_drawn_follow_the_phase(lesson: Path, tmp_path: Path) -> None:
    """One directory, one order of samples; held-out masks stay those of the shards."""
    anew = drawn_anew(lesson, tmp_path / "anew")
    high = ("data.masks.rate=0.3", "data.masking=whole_word")
    first, second, last = opened(changing(high, ("encoder.dropout=0.1",), anew=True), anew)
    assert first.order == second.order == last.order == 32
    shares = [phase.train[0].mean_predictions / 30 for phase in (first, second, last)]
    assert shares == pytest.approx([0.28, 0.15, 0.15], abs=0.03)
    assert first.train[0].manifest.max_predictions == 9 > last.train[0].manifest.max_predictions
    assert len({phase.validation[0].manifest.max_predictions for phase in (first, last)}) == 1
    assert first.plan.step_flops / first.plan.sequences > last.plan.step_flops / 64
    assert first.words.startswith("phase 1: steps 1 to 3, ") and first.words.endswith(
        ", ".join(high)
    )
    assert last.words == "phase 3: steps 7 to 2,400, sequences of 32"
    with pytest.raises(DataError, match=r"rate=0\.15, .* 0\.2"):
        opened(override(changing(anew=True), ["data.masks.rate=0.2"]), anew)


def test_stored_masks_belong_to_the_phase_of_their_rate(lesson: Path, tmp_path: Path) -> None:
    other = of_rate(lesson, 0.3, tmp_path / "rate")
    first, last = opened(changing(("data.masks.rate=0.3",)), lesson, other)
    assert first.train[0].directory == first.validation[0].directory == other
    assert last.train[0].directory == last.validation[0].directory == lesson
    assert first.order == last.order == 32  # the same rows, so the last phase reads on
    with pytest.raises(ConfigError, match=rf"phases\.0 .*rate=0\.3 .* 32, but {lesson} "):
        opened(changing(("data.masks.rate=0.3",)), lesson)
    with pytest.raises(DataError, match=r"rate=0\.3, .* 0\.15"):
        opened(changing(("encoder.dropout=0.1",)), lesson, other)


def test_words_are_read_in_proportion_to_rows(lesson: Path, short: Path) -> None:
    """Two passes read all words twice; the first phase reads its own directory's."""
    rows, words = Dataset.open(lesson).rows, Dataset.open(lesson).manifest.words(TRAIN)
    assert words is not None and words > 1000
    run = override(TINY, [f"steps={2 * rows}", "batch.sequences=1", "phases=[]"])
    phases = opened(run, lesson)
    assert words_read(phases, run.steps) == 2 * words == phases[0].plan.words
    assert words_read(phases, 0) == 0
    assert words_read(phases, 1) == round(words / rows)
    assert words_read(phases, rows) == words
    marked = override(run, [f"checkpoint.at_words=1 {words} {2 * words} {2 * words + 1}"])
    assert steps_at_words(marked, phases) == {1, rows, 2 * rows}, "the last one is not reached"
    assert steps_at_words(run, phases) == frozenset()
    first, last = opened(tiny("steps=12"), short, lesson)
    assert words_read((first, last), 9) == first.plan.words > 0
    assert words_read((first, last), 12) == first.plan.words + last.plan.words


def test_a_growing_batch_reads_fewer_words_at_first(lesson: Path) -> None:
    grows = ["batch.warmup_steps=8", "batch.first_sequences=2", "batch.sequences=10"]
    phases = opened(override(TINY, ["steps=20", *grows]), lesson)
    read = [words_read(phases, step) or 0 for step in range(21)]
    assert read[-1] == phases[0].plan.words
    assert 2 * read[4] < read[8] < read[-1] * 8 / 20
    assert read[20] - read[12] == pytest.approx(2 * (read[12] - read[8]), abs=2)


def test_words_are_unknown_for_shards_that_do_not_say(lesson: Path, tmp_path: Path) -> None:
    shutil.copytree(lesson, tmp_path / "older")
    manifest = json.loads((tmp_path / "older" / "manifest.json").read_bytes())
    for about in manifest["corpora"].values():
        about.pop("words")
    (tmp_path / "older" / "manifest.json").write_text(json.dumps(manifest))
    phases = opened(TINY, tmp_path / "older")
    assert words_read(phases, 5) is None and phases[0].plan.words == 0
    assert steps_at_words(TINY, phases) == frozenset()
    with pytest.raises(DataError, match=r"^checkpoint\.at_words .* prepare the text again, or "):
        steps_at_words(override(TINY, ["checkpoint.at_words=1e3"]), phases)


def test_a_mixture_reads_corpora_by_their_weights(lesson: Path, tmp_path: Path) -> None:
    names = sorted(Dataset.open(lesson).manifest.corpora)[:2]
    parts = [of_corpus(lesson, name, tmp_path / name) for name in names]
    one, other = names
    only = f'batch.mixture=[{{"corpus": "{one}", "weight": 2}}]'
    both = f'[{{"corpus": "{one}", "weight": 3}}, {{"corpus": "{other}", "weight": 1}}]'
    run = changing((only,), (f"batch.mixture={both}",))
    first, second, last = opened(run, *parts)
    assert [dataset.directory for dataset in first.train] == parts[:1]
    assert [len(phase.train) for phase in (second, last)] == [2, 2]
    assert orders(first, second, last) == [0, 1, 2]
    width, uses = max(map(len, names)), ((75, 18), (25, 6))
    said = {
        f"  {name:{width}}  {own.tokens:>17,} tokens   {share}.000%  {n / own.rows:>10,.2f} passes"
        for name, own, (share, n) in zip(names, last.train, uses, strict=True)
    }
    assert second.lines()[-3] == "mixture: 2 corpora by batch.mixture"
    assert set(second.lines()[-2:]) == said and last.lines() == last.plan.lines()
    with pytest.raises(ConfigError, match=f"{parts[1]}, .* {other} "):
        opened(override(TINY, [only]), *parts)
    with pytest.raises(ConfigError, match=rf"phases\.1 names {other}, but no --data"):
        opened(run, parts[0])
    little = both.replace("1}", "1e-10}")
    with pytest.raises(ConfigError, match="1/2147483648 "):
        opened(override(TINY, [f"batch.mixture={little}"]), *parts)


def test_corpora_of_one_directory_are_read_by_a_power_of_their_tokens(prepared: Path) -> None:
    run = override(TINY, ["batch.mixture_exponent=0.5", "steps=300"])
    [phase] = opened(run, prepared)
    names = [next(iter(dataset.manifest.corpora)) for dataset in phase.train]
    assert names == ["articles", "books", "news", "web", "stories"]
    assert [next(iter(own.manifest.corpora)) for own in phase.validation] == names
    tokens = np.array([dataset.tokens for dataset in phase.train])
    shares = np.sqrt(tokens) / np.sqrt(tokens).sum()
    assert [use.share for use in phase.corpora_used] == pytest.approx(sorted(shares)[::-1])
    found = phase.sample_order().locate(np.arange(300 * 64))
    counts = np.bincount(found.dataset)
    assert np.abs(counts - 300 * 64 * shares).max() < 120  # 4,096 shuffled, 1.5 samples beyond
    whole = np.bincount(found.dataset[: 4 * CYCLE])
    assert np.abs(whole - 4 * CYCLE * shares).max() <= 1.5  # half a sample per level of the tree
    only = override(run, ['batch.corpora=["news", "web"]'])
    [some] = opened(only, prepared)
    for part in (some.train, some.validation):
        assert [own.manifest.corpora.keys() for own in part] == [{"news"}, {"web"}]
    [even] = opened(override(only, ["batch.mixture_exponent=1"]), prepared)
    assert even.corpora_used == [] and even.plan.train_sequences == some.plan.train_sequences
    assert even.sample_order().weights == ()
    with pytest.raises(ConfigError, match="names latin, but no --data"):
        opened(override(run, ['batch.corpora=["news", "latin"]']), prepared)
    dataset = Dataset.open(prepared)  # with a corpus that is only held out
    corpora = dataset.manifest.corpora | {"xx": {"sequences": 3, "validation_sequences": 3}}
    dataset.manifest = replace(dataset.manifest, corpora=corpora)
    with pytest.raises(ConfigError, match=f"names xx, of which {prepared} "):
        check_phases(override(run, ['batch.corpora=["news", "xx"]']), [dataset])


def test_a_phase_mixes_four_corpora_of_three_languages(prepared: Path, tmp_path: Path) -> None:
    """Articles and books share a share, by their rows."""
    known = {"articles": "en", "books": "en", "news": "de"}
    directory = in_languages(prepared, known, tmp_path / "known")
    names = [*known, "web"]
    mixed = ["batch.mixture_exponent=0.3", f"batch.corpora={json.dumps(names)}", "steps=200"]
    by_corpus = override(TINY, mixed)
    run = override(by_corpus, ["batch.mixture_over=languages"])
    [plain], [phase] = opened(by_corpus, prepared), opened(run, directory)
    assert [corpus_of(dataset) for dataset in phase.train] == names
    assert phase.order == plain.order
    assert opened(by_corpus, directory)[0].sample_order().weights == plain.sample_order().weights
    weights = mixture_weights(run.batch, phase.train)
    assert phase.sample_order().weights == weights != plain.sample_order().weights
    shares = np.array(weights) / sum(weights)
    found = phase.sample_order().locate(np.arange(3 * CYCLE))
    assert np.abs(np.bincount(found.dataset) - 3 * CYCLE * shares).max() <= 1
    settings = ["batch.mixture_over=languages", "batch.mixture_exponent=0.7"]
    phases = [{"steps": 9, "sequence_length": 32, "sequences": 64, "settings": settings}]
    first, last = opened(override(by_corpus, [f"phases={json.dumps(phases)}"]), directory)
    assert first.changes == (*settings,) and sum(last.before) == 9 * 64
    assert last.sample_order().weights == plain.sample_order().weights


def test_a_corpus_whose_shards_are_all_damaged_is_not_sampled(
    prepared: Path, tmp_path: Path
) -> None:
    """With stored masks and with those that are drawn, of which some rows are read to plan."""
    for name, settings in (("stored", list[str]()), ("drawn", DRAWN)):
        copy = tmp_path / name
        if settings:
            drawn_anew(prepared, copy)
        else:
            shutil.copytree(prepared, copy, copy_function=os.link)
        for shard in Dataset.open(copy).by_corpus()["news"].shards:
            (copy / shard.file).unlink()
        train, held_out = [Dataset.open(copy, skip_damaged=True)], [Dataset.open(copy, VALIDATION)]
        run = override(TINY, ["batch.mixture_exponent=0.5", *settings])
        [phase] = make_phases(run, 1, 0, train, held_out)
        assert len(phase.train) == 5 and phase.plan.step_flops > 0
        only = override(run, ['batch.corpora=["news"]'])
        with pytest.raises(DataError, match=f" news in {copy} "):
            make_phases(only, 1, 0, train, held_out)


def test_a_falling_exponent_continues_each_corpus_at_its_next_mask(prepared: Path) -> None:
    """As mmBERT's, with more corpora in the last phase: a row that was read n times shows mask n
    mod 10 next, in whichever phase."""
    usual = {"steps": 80, "sequence_length": 32, "sequences": 64}
    corpora = 'batch.corpora=["articles", "books", "news"]'
    settings = [[f"batch.mixture_exponent={each}", corpora] for each in (0.7, 0.5)]
    phases = json.dumps([usual | {"settings": own} for own in settings])
    last = ["batch.mixture_exponent=0", "steps=3000"]
    parts = opened(override(TINY, [f"phases={phases}", *last]), prepared)
    assert [len(phase.train) for phase in parts] == [3, 3, 5]
    assert orders(*parts) == [0, 1, 2]
    assert parts[0].before == () and len(parts[2].before) == 5 and parts[2].before[3:] == (0, 0)
    assert sum(parts[1].before) == 80 * 64 and sum(parts[2].before) == 160 * 64
    readings: dict[tuple[str, int], list[int]] = {}
    for phase in parts:
        found = phase.sample_order().locate(np.arange(phase.sequences))
        names = [next(iter(dataset.manifest.corpora)) for dataset in phase.train]
        for dataset, number, row in zip(found.dataset, found.pass_number, found.row, strict=True):
            readings.setdefault((names[dataset], int(row)), []).append(int(number))
    assert len(readings) == sum(dataset.rows for dataset in parts[2].train)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in readings.values())
    assert max(map(len, readings.values())) > 4


def test_an_order_is_shared_unless_another_one_read_between(
    lesson: Path, prepared: Path, tmp_path: Path
) -> None:
    """And phases of different corpora with equal rows share none."""
    one = sorted(Dataset.open(lesson).manifest.corpora)[0]
    parts = [of_corpus(lesson, one, tmp_path / name) for name in ("one", "two")]
    path = parts[1] / "manifest.json"
    named = path.read_text().replace(f'"corpora": {{"{one}"', '"corpora": {"two"')
    path.unlink()  # a hard link
    path.write_text(named)
    assert [*Dataset.open(parts[1]).manifest.corpora] == ["two"]
    mixtures = [f'batch.mixture=[{{"corpus": "{name}", "weight": 1}}]' for name in (one, "two")]
    by_size = [f'batch.corpora=["{name}"]' for name in (one, "two")]
    for first, second in (mixtures, by_size):
        phases = opened(changing((first,), (second,), (first,)), *parts)
        assert orders(*phases[:2]) == [0, 1]
        assert not any(phases[1].before)
    assert phases[2].order == phases[0].order  # by size it reads on
    half, drops = "batch.mixture_exponent=0.5", "encoder.dropout=0.1"
    settings = ((half,), (half, drops), ("batch.mixture_exponent=0.3",), (half,), ())
    phases = opened(changing(*settings), prepared)
    assert orders(*phases) == [0, 0, 1, 2, 3, 3]
    assert [sum(phase.before) for phase in phases] == [0, 0, 2 * 24, 3 * 24, 0, 0]
