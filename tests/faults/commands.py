"""Mistakes in the rooms that a command's answer comes from: plan, doctor, scores, reports."""

FAULTS = {
    "pipeline/base/durations.py": [
        (
            "minutes of an hour go beyond 59",
            "{minutes // 60} h {minutes % 60:02d} min",
            "{minutes // 60} h {minutes % 100:02d} min",
        ),
    ],
    "pipeline/base/files.py": [
        (
            "a file that another wrote is replaced",
            "if not replaces and path.exists():",
            "if False:",
        ),
        (
            "content is synced before it is written",
            "        file.flush()\n",
            "",
        ),
    ],
    "pipeline/base/progress.py": [
        (
            "a rate of all that was done before",
            "(now_done - done_before) / max(seconds",
            "now_done / max(seconds",
        ),
    ],
    "pipeline/base/typed_json.py": [
        (
            "numbers that are not finite pass",
            "if not all(map(math.isfinite, numbers)):",
            "if False:",
        ),
    ],
    "pipeline/base/private_directories.py": [
        (
            "a link inside a cache is refused",
            "if not is_reachable or stat.S_ISLNK(status.st_mode):",
            "if not is_reachable:",
        ),
    ],
    "pipeline/config/data_settings.py": [
        ("no prediction in short rows", "return max(1, (text_tokens", "return max(0, (text_tokens"),
        (
            "one draw stands for many",
            "draws_differ.get(self.format, False)",
            "draws_differ.get(self.format, True)",
            "tests/pipeline/config/test_rules.py",
        ),
    ],
    "pipeline/config/encoder_settings.py": [
        (
            "heads that do not divide the width",
            "if self.heads > 0 and self.width % self.heads:",
            "if self.heads < 0 and self.width % self.heads:",
        ),
    ],
    "pipeline/config/schema.py": [
        ("an open interval has its end", "else value < high", "else value <= high"),
    ],
    "pipeline/config/training_settings.py": [
        ("checkpoints to keep are not counted", "(steps // self.keep_every if", "(steps * 0 if"),
    ],
    "pipeline/costs/communication.py": [
        (
            "one rank more in a ring",
            "return sum(shares) * (ranks - 1) / ranks",
            "return sum(shares)",
        ),
    ],
    "pipeline/costs/memory.py": [
        (
            "what fits by half fits",
            "sum(part.most for part in parts) <= device_bytes",
            "sum(part.most for part in parts) <= 2 * device_bytes",
        ),
    ],
    "pipeline/costs/preparation/stage_time.py": [
        (
            "the longest task is forgotten",
            "return max(*(work.seconds for work in units), cpu_seconds",
            "return max(0, cpu_seconds",
        ),
    ],
    "pipeline/costs/preparation/disk_room.py": [
        (
            "a full disk is room enough",
            "return self.needed <= self.free",
            "return self.needed <= 2 * self.free",
        ),
    ],
    "pipeline/costs/shapes/partition.py": [
        (
            "a rank holds all moments",
            "return self.padded // self.ranks if self.stage else self.total",
            "return self.total",
        ),
        (
            "a model is padded downwards",
            "return -(-count // multiple) * multiple",
            "return count // multiple * multiple",
        ),
        (
            "what stage 3 keeps whole takes no memory",
            "return self.share + sum(self.kept) * (self.ranks > 1)",
            "return self.share",
        ),
    ],
    "pipeline/costs/cost_plan.py": [
        (
            "what needs too much fits",
            "        if needed.most <= device.memory",
            "        if needed.least <= device.memory",
        ),
    ],
    "pipeline/diagnosis/checks.py": [
        (
            "a failure is a warning",
            "FAIL if found < fail else WARN",
            "WARN if found < fail else WARN",
        ),
    ],
    "pipeline/diagnosis/devices.py": [
        (
            "ranks share a card unnoticed",
            "for uuid, ranks in owners.items() if len(ranks) > 1}",
            "for uuid, ranks in owners.items() if len(ranks) > 2}",
        ),
    ],
    "pipeline/diagnosis/own_rank.py": [
        (
            "one node too few",
            "return max(1, -(-world_size // nodes))",
            "return max(1, world_size // nodes)",
        ),
    ],
    "pipeline/downstream/features.py": [
        (
            "a cut pair is not counted",
            "is_cut = len(first) + len(second) > space",
            "is_cut = len(first) > space",
        ),
    ],
    "pipeline/downstream/scores.py": [
        (
            "the worst point of a search is chosen",
            "chosen = max(range(len(medians))",
            "chosen = min(range(len(medians))",
        ),
    ],
    "pipeline/downstream/tfidf.py": [
        (
            "candidates of a question move by one",
            "len(example.texts) - 1 for example",
            "len(example.texts) for example",
        ),
    ],
    "pipeline/downstream/reading/labels.py": [
        ("all labels are printed", "if more > 0 else shown", "if more > 9999 else shown"),
    ],
    "pipeline/downstream/reading/hub_tasks.py": [
        ("labels are one off", "return names[label] if 0", "return names[label - 1] if 0"),
    ],
    "pipeline/evaluation/held_out.py": [
        (
            "predictions count for the next row",
            "torch.searchsorted(starts_R, inputs.positions_K, right=True) - 1",
            "torch.searchsorted(starts_R, inputs.positions_K, right=False)",
        ),
    ],
    "pipeline/evaluation/scoring/metrics.py": [
        ("ties have the rank of the last", "(ends - (counts - 1) / 2)[places]", "ends[places]"),
        ("entities end a word late", "(open_type, first, index - 1)", "(open_type, first, index)"),
    ],
    "pipeline/evaluation/scoring/seed_summary.py": [
        (
            "one degree of freedom too many",
            "t_quantile(count - 1) * spread",
            "t_quantile(count) * spread",
        ),
    ],
    "pipeline/evaluation/scoring/squad.py": [
        (
            "F1 is of the worst answer",
            "return max(_word_f1(answer, predicted)",
            "return min(_word_f1(answer, predicted)",
        ),
    ],
    "pipeline/evaluation/zero_shot/grammar.py": [
        ("equal sentences are right", "return 0.5", "return 1.0"),
    ],
    "pipeline/evaluation/zero_shot/pseudo_likelihood.py": [
        (
            "the last word is not scored",
            "places=np.arange(1, length - 1)",
            "places=np.arange(1, length - 2)",
        ),
    ],
    "pipeline/experiments/significance.py": [
        (
            "seeds count twice",
            "half = t_quantile(seeds - 1) * error",
            "half = t_quantile(2 * seeds - 1) * error",
        ),
    ],
    "pipeline/experiments/results.py": [
        (
            "equal means twice as many",
            "max(tokens) <= (1 + EQUAL) * min(tokens)",
            "max(tokens) <= (2 + EQUAL) * min(tokens)",
        ),
    ],
    "pipeline/experiments/measures.py": [
        ("memory of the last step", "memory = max(memory, last.get", "memory = max(0, last.get"),
    ],
    "pipeline/released/continued.py": [
        (
            "longer rows than the model has positions",
            "min(base.data.sequence_length, encoder.positions)",
            "base.data.sequence_length",
        ),
    ],
    "pipeline/released/folder.py": [
        (
            "a larger vocabulary is taken",
            "if vocabulary.size > encoder.vocab_size:",
            "if vocabulary.size > 2 * encoder.vocab_size:",
        ),
    ],
    "pipeline/remote/retries.py": [
        (
            "the server's wish is ignored",
            "pause = max(pause, min(error.wait, _LONGEST_WISH_SECONDS))",
            "pause = min(pause, _LONGEST_WISH_SECONDS)",
        ),
    ],
    "pipeline/remote/copies.py": [
        (
            "an endless answer fills the disk",
            "if place.tell() > file.size:",
            "if place.tell() > 1000 * file.size:",
        ),
    ],
    "pipeline/remote/http.py": [
        (
            "a length that no file has is believed",
            "return length if (length := int(text)) <= MOST_FILE_BYTES else None",
            "return int(text)",
        ),
    ],
    "pipeline/reporting/curves.py": [
        (
            "the last stretch is empty",
            "(point[0] - first) * columns // max(1, last - first)",
            "(point[0] - first) * (columns - 1) // max(1, 2 * (last - first))",
        ),
    ],
    "pipeline/reporting/front_matter.py": [
        (
            "scores of baselines are published",
            "if score.note != BASELINE and math.isfinite",
            "if math.isfinite",
        ),
    ],
    "pipeline/reporting/run_summary.py": [
        ("any file is read", "or history.stat().st_size > MOST_BYTES:", "or False:"),
    ],
    "pipeline/clean.py": [
        ("text is removed before anyone says yes", "elif arguments.yes:", "elif True:"),
    ],
    "pipeline/doctor.py": [
        ("a job starts where it would stop", "    if failed:\n", "    if False:\n"),
    ],
    "pipeline/status.py": [
        ("several runs are shown as the first alone", "elif len(found) == 1:", "elif found:"),
    ],
    "pipeline/recipes/albert.py": [
        (
            "an xlarge with twice the heads",
            '"xlarge", 24, 2_048, 16, 32',
            '"xlarge", 24, 2_048, 32, 32',
        ),
    ],
    "pipeline/recipes/modernbert.py": [
        (
            "the rate rises as if the batch never grew",
            "round(passed * each + read / size)",
            "round(read / size)",
        ),
    ],
    "pipeline/recipes/bert.py": [
        ("nearly all steps are short of full length", "steps=900_000,", "steps=990_000,"),
    ],
    "pipeline/released/choice.py": [
        (
            "what --set says is overruled by ten passes",
            "self.run, self.changed, rows",
            "self.run, (), rows",
        ),
    ],
    "pipeline/costs/preparation/site_pages.py": [
        ("sampled pages count twice", "round(pages) - len(sites)", "round(pages)"),
    ],
    "pipeline/evaluation/zero_shot/cloze.py": [
        (
            "the masks of a line share their probability",
            ".float().softmax(-1)",
            ".float().softmax(0)",
        ),
    ],
    "pipeline/evaluation/loss_parts.py": [
        (
            "parts are added whatever they count",
            "part.weight * first_count(parts, counts) / _count(part, counts)",
            "part.weight",
        ),
    ],
    "pipeline/evaluation/corpus_scores.py": [
        (
            "the best corpora are called the worst",
            "key=lambda each: -each[1]",
            "key=lambda each: each[1]",
        ),
    ],
    "pipeline/downstream/reading/division.py": [
        ("a label has no training example", "is_last |= left[label] == number", "is_last |= False"),
    ],
    "pipeline/experiments/tables/modern.py": [
        (
            "gated layers have more parameters",
            "return size * 2 // 3 // 16 * 16",
            "return size // 16 * 16",
        ),
    ],
    "pipeline/experiments/tables/roberta.py": [
        (
            "formats read half of the tokens",
            "run.batch.sequences * run.data.sequence_length}",
            "run.batch.sequences * run.data.sequence_length // 2}",
        ),
    ],
    "pipeline/experiments/tables/table.py": [
        ("two arms share a directory", "names.count(name) > 1", "names.count(name) > 2"),
    ],
}
