"""Mistakes in `pipeline/data/`, `pipeline/ingest/` and `pipeline/kernels/`."""

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
            "predictions belong to the next row",
            'np.searchsorted(first_bits, set_bits, "right") - 1',
            'np.searchsorted(first_bits, set_bits, "left") - 1',
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
            "sentences are cut where they would fit",
            "if end - start <= room:",
            "if end - start < room:",
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
    ],
    "pipeline/ingest/compression/bzip2.py": [
        (
            "marks inside a byte are not found",
            "mark >> shift & (1 << 40) - 1",
            "mark << shift & (1 << 40) - 1",
        ),
    ],
    "pipeline/ingest/compression/frames.py": [
        (
            "frames at the edge of a block are missed",
            "start += len(data) - len(magic) + 1",
            "start += len(data)",
        ),
    ],
    "pipeline/ingest/compression/codecs.py": [
        (
            "skippable frames end a file",
            "while _is_skippable(rest) and len(rest) >= 8:",
            "while False:",
        ),
    ],
    "pipeline/ingest/documents/byte_blocks.py": [
        (
            "a read stops early",
            "while wanted > 0 and (block := file.read(min(size, wanted))):",
            "while wanted > size and (block := file.read(min(size, wanted))):",
        ),
    ],
    "pipeline/ingest/documents/plain_text.py": [
        (
            "lines have wrong numbers",
            "yield from _decoded(content, at, number - 1, where)",
            "yield from _decoded(content, at, number, where)",
        ),
    ],
    "pipeline/ingest/documents/csv_tables.py": [
        ("a table with one column", "if len(names) < 2 or {*names}", "if {*names}"),
    ],
    "pipeline/ingest/documents/json_lines.py": [
        ("byte counts lack the line's end", "position += len(line) + 1", "position += len(line)"),
    ],
    "pipeline/ingest/documents/read.py": [
        (
            "the last piece of a file is lost",
            "min(start + piece_bytes, source.size) for start",
            "min(start + piece_bytes, source.size - 1) for start",
        ),
    ],
    "pipeline/ingest/encodings/decoding.py": [
        (
            "the likeliest encoding loses",
            "return min(found, key=lambda name",
            "return max(found, key=lambda name",
        ),
    ],
    "pipeline/ingest/extraction/packs.py": [
        (
            "files of other corpora share a pack",
            "small and source.corpus == run[-1].corpus",
            "small",
        ),
    ],
    "pipeline/ingest/extraction/document_tables.py": [
        (
            "the last row of a table is lost",
            "table.slice(start, last + 1 - start)",
            "table.slice(start, last - start)",
        ),
    ],
    "pipeline/ingest/extraction/warc.py": [
        ("a record at a unit's end is read twice", "if place >= start:", "if place > start:"),
    ],
    "pipeline/ingest/corpora/common_crawl.py": [
        ("the last month is left out", "_number(bounds[1]) + 1)}", "_number(bounds[1]))}"),
    ],
    "pipeline/ingest/corpora/groups.py": [
        (
            "a short corpus passes",
            "if found[member] < (1 - SHORT_SHARE) * size",
            "if found[member] < SHORT_SHARE * SHORT_SHARE * size",
        ),
    ],
    "pipeline/ingest/corpora/input_files.py": [
        ("hidden files are read", 'if not entry.name.startswith("."):', "if True:"),
    ],
    "pipeline/ingest/wikitext/prose.py": [
        (
            "headings below a skipped one are kept",
            "if skipped and node.level > skipped:",
            "if skipped and node.level > skipped + 1:",
        ),
        (
            "five quotes are bold alone",
            "kept = [1 if size == 4 else max(0, size - 5)",
            "kept = [1 if size == 4 else max(0, size - 6)",
        ),
    ],
    "pipeline/ingest/wikitext/templates.py": [
        ("the last value is lost", "if index < len(values):", "if index < len(values) - 1:"),
    ],
    "pipeline/ingest/wikitext/variants.py": [
        (
            "rules in rules are not read",
            'mark == "-{" and depth < _MOST_NESTED',
            'mark == "-{" and depth < 1',
        ),
    ],
    "pipeline/ingest/extraction/zip_archives.py": [
        ("bombs are read", "if packed > size or unpacked > max", "if packed > size or 0 > max"),
    ],
}
