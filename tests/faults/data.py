"""Mistakes in `pipeline/data/` and `pipeline/kernels/`."""

FAULTS = {
    "pipeline/data/rows/mask_kernel.py": [
        (
            "mask and kept swapped",
            "packed |= action << (2 * slot)",
            "packed |= (2 - action) << (2 * slot)",
            "tests/pipeline/data/rows/test_masks.py",
        ),
    ],
    "pipeline/data/rows/mask_positions.py": [
        (
            "short rows predict nothing",
            "budgets[row] = max(1, (text",
            "budgets[row] = max(0, (text",
            "tests/pipeline/data/rows/test_masks.py",
        ),
        (
            "spans run into the budget's end",
            "if stop - start > left or any_in",
            "if stop - start > left + 1 or any_in",
        ),
        (
            "special tokens are predicted",
            "found |= np.uint64(not special[known]) << bit",
            "found |= np.uint64(1) << bit",
        ),
    ],
    "pipeline/data/rows/masks.py": [
        (
            "rare ids are drawn too often",
            "(left[index] << 32) // full, donor",
            "(left[index] << 31) // full, donor",
        ),
        (
            "another rate than the recipe's",
            "sixteenths=parts_per_million(self.rate) * 16",
            "sixteenths=parts_per_million(self.rate) * 15",
        ),
    ],
    "pipeline/data/rows/predictions.py": [
        (
            "predictions move by what bitmaps are rounded up by",
            "places = set_bits - first_bits[rows] + row_offsets[rows]",
            "places = set_bits",
        ),
    ],
    "pipeline/data/rows/segment_rows.py": [
        (
            "the second segment starts a token late",
            "spans[:, 1] - spans[:, 0] + 1 + frame.separators",
            "spans[:, 1] - spans[:, 0] + 2 + frame.separators",
        ),
        ("half of all pairs are too long", "half = law.room // 2\n", "half = law.room\n"),
    ],
    "pipeline/data/rows/sentence_rows.py": [
        ("rows cross documents", "or (separator and not across)", "or False"),
        (
            "long sentences are cut a word too early",
            "for place in range(start + room, max(",
            "for place in range(start + room - 1, max(",
        ),
    ],
    "pipeline/data/rows/pack.py": [
        (
            "dropped tokens are not counted",
            '"dropped_tokens": len(tokens.ids) - own // draws',
            '"dropped_tokens": 0',
        ),
    ],
    "pipeline/kernels/bits.py": [
        (
            "the first bit of a range is lost",
            "low = max(0, start - (index << 6))",
            "low = max(1, start - (index << 6))",
        ),
    ],
    "pipeline/kernels/permutation.py": [
        (
            "an order that meets places twice",
            "column -= wide if column >= wide else 0",
            "column -= wide if column > wide else 0",
        ),
    ],
    "pipeline/kernels/characters.py": [
        (
            "characters of two bytes are wrong",
            "if byte < 0xE0:",
            "if byte < 0xD0:",
            "tests/pipeline/data/selection/test_words.py",
        ),
    ],
    "pipeline/kernels/cache.py": [
        (
            "stale kernels are used",
            "digest.update(path.read_bytes())",
            "digest.update(path.name.encode())",
        ),
    ],
    "pipeline/data/text/sentences.py": [
        (
            "abbreviations end sentences",
            "key = (key ^ byte) * _FNV_PRIME",
            "key = (key ^ byte) + _FNV_PRIME",
        ),
    ],
    "pipeline/data/text/giants.py": [
        (
            "the last piece of a giant is lost",
            "end = min(len(text), start + MOST_CHARACTERS)",
            "end = min(len(text) - 1, start + MOST_CHARACTERS)",
        ),
    ],
    "pipeline/data/text/losses.py": [
        (
            "a file of which half is lost is not named",
            "if lost(counts) * 2 > counts[READ]",
            "if lost(counts) > counts[READ]",
        ),
    ],
    "pipeline/data/text/sample.py": [
        ("the sample is of the first files", "tasks[index * len(tasks) // most]", "tasks[index]"),
    ],
    "pipeline/data/text/text_tasks.py": [
        ("a split mixes corpora", "pending[0].source.corpus != corpus or weight", "weight"),
    ],
    "pipeline/data/tokenizers/token_ids.py": [
        (
            "sentences of the next document are kept",
            "sentence_starts[sentence] < end:",
            "sentence_starts[sentence] <= end:",
        ),
    ],
    "pipeline/data/tokenizers/reference_engine.py": [
        ("ids above 65,535 wrap", "if vocabulary.size <= 65_536 else", "if True else"),
    ],
    "pipeline/data/tokenizers/trainers.py": [
        (
            "the alphabet covers too little",
            "before < COVERAGE * totals.sum()",
            "before < 0.5 * totals.sum()",
        ),
    ],
    "pipeline/data/tokenizers/unigram_trainer.py": [
        ("pieces that occur once stay", "enough = (often >= 2)", "enough = (often >= 1)"),
    ],
    "pipeline/data/tokenizers/vocabulary.py": [
        (
            "the size leaves out the last id",
            "size = max((ids | added).values()) + 1",
            "size = max((ids | added).values())",
        ),
    ],
    "pipeline/data/selection/minhash.py": [
        (
            "all orders hash alike",
            "np.arange(1, 2 * ORDERS + 1, dtype=np.uint64) * GOLDEN",
            "np.ones(2 * ORDERS, dtype=np.uint64) * GOLDEN",
        ),
    ],
    "pipeline/data/selection/clusters.py": [
        ("documents agree on too little", "least=ORDERS * 3 // 4", "least=ORDERS // 4"),
    ],
    "pipeline/data/selection/filters.py": [
        (
            "a bound that is met is refused",
            '"too few words", words < self.min_words',
            '"too few words", words <= self.min_words',
        ),
    ],
    "pipeline/data/selection/rule_sets.py": [
        (
            "Gopher keeps texts of 49 words",
            '"under 50 words", words < 50',
            '"under 50 words", words < 49',
        ),
    ],
    "pipeline/data/selection/signature_store.py": [
        (
            "stored signatures have their words in another order",
            "*(table[name] for name in _WORDS)]",
            "*(table[name] for name in _WORDS[::-1])]",
        ),
    ],
    "pipeline/data/selection/contamination.py": [
        (
            "foreign bytes are read as text",
            ") * 10 > len(content) * 3",
            ") * 10 > len(content) * 30",
        ),
    ],
    "pipeline/data/preparation/holdout.py": [
        ("one more hash is held out", "np.uint64(threshold - 1)", "np.uint64(threshold)"),
    ],
    "pipeline/data/preparation/held_out_copies.py": [
        ("copies need all runs", "enough & (2 * found >= sizes)", "enough & (found > sizes)"),
    ],
    "pipeline/data/preparation/assemble.py": [
        (
            "a validation shard mixes corpora",
            "part.corpus != group[0].corpus or total > most",
            "total > most",
        ),
        ("unusable records never stop a run", "if bad > most * records:", "if bad > records:"),
    ],
    "pipeline/data/preparation/worker.py": [
        (
            "parts are numbered twice",
            "return PartInProgress(self.task, self.spans, self.number + 1)",
            "return PartInProgress(self.task, self.spans, self.number)",
        ),
        (
            "held-out documents are trained on",
            "part.sides[0].add(tokens, batch, filled & ~validation)",
            "part.sides[0].add(tokens, batch, filled)",
            "tests/pipeline/data/preparation/test_holdout.py",
        ),
    ],
    "pipeline/data/shards/document_index.py": [
        (
            "documents at an end are not found",
            "self.least[between] <= last",
            "self.least[between] < last",
        ),
    ],
    "pipeline/data/shards/held_out_check.py": [
        (
            "the largest hash is left out",
            "hashes <= sorted_hashes[-1]",
            "hashes < sorted_hashes[-1]",
        ),
    ],
    "pipeline/data/shards/segments.py": [
        (
            "a taken segment is a token short",
            "np.where(taken, last - first + 1, 0)",
            "np.where(taken, last - first, 0)",
        ),
    ],
    "pipeline/data/shards/manifest.py": [
        (
            "paths leave the directory",
            "if not is_plain_name(shard.name) or shard.file",
            "if shard.file",
        ),
    ],
    "pipeline/data/shards/well_formed.py": [
        (
            "an id beyond the vocabulary is well-formed",
            "if ids.max() >= vocabulary.size:",
            "if ids.max() > vocabulary.size:",
        ),
    ],
    "pipeline/data/shards/arrow_files.py": [
        (
            "sliced columns start at 0",
            "return values[offsets[0] : offsets[-1]]",
            "return values[: offsets[-1] - offsets[0]]",
        ),
    ],
    "pipeline/data/takedown/purge.py": [
        (
            "hashes of another text are removed",
            "view[start : stop - 1], seed",
            "view[start : stop], seed",
        ),
    ],
    "pipeline/data/takedown/request.py": [
        ("what was taken down is taken again", "if not row[TAKEN_DOWN]]", "]"),
    ],
    "pipeline/data/takedown/shard.py": [
        (
            "taken words are still predicted",
            "kept = predictions.select(~cleared",
            "kept = predictions.select(cleared | ~cleared",
        ),
    ],
    "pipeline/data/inspection/document_statistics.py": [
        ("the longest documents are not shown", "max(counts) + 1)]", "max(counts))]"),
        (
            "what is unique counts as a copy",
            "return (total - len(self.hashes)) / total",
            "return len(self.hashes) / total",
        ),
    ],
    "pipeline/data/inspection/sequences.py": [
        ("a sequence beyond the last", "if not 0 <= index < count:", "if not 0 <= index <= count:"),
    ],
    "pipeline/data/leftovers/stored_items.py": [
        (
            "what is in use is removed",
            "time.time() - item.used_at < _RECENT_SECONDS",
            "time.time() - item.used_at < 0",
        ),
        (
            "what was used meanwhile is removed",
            "path.stat().st_mtime > item.used_at",
            "path.stat().st_mtime < 0",
        ),
    ],
    "pipeline/data/leftovers/made_shards.py": [
        (
            "unfinished shards need nothing",
            'made.doubts.append(f"the unfinished shards in {path} may need it")',
            "pass",
        ),
    ],
}
