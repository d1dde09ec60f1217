"""One row for each feature that the pages promise: command lines, exit code, what must hold.

Whoever adds a feature adds a row, and whoever removes one removes its rows. The rows look from
outside only, so they stay valid while the code changes. `commands.py` explains how to read them.
"""

from tests.end_to_end.commands import NOTHING, row

TINY = "--recipe roberta_tiny --tokenizer bpe-tokenizer --workers 1"
"""Of `prepare`: for the smallest RoBERTa."""
SHRUNK_DATA = "--set data.vocab_size=400 --set data.validation_fraction=0.05"
SHRUNK = (
    "--set encoder.layers=1 --set encoder.width=32 --set encoder.heads=1 "
    "--set encoder.feed_forward=32 --set batch.sequences=32 --set batch.per_device=32 "
    "--set logging.every=1 --set precision=fp32"
)
"""Of BabyLM's recipe: what makes it a matter of seconds."""
SIX = (
    "--set steps=6 --set schedule.warmup_steps=2 --set optimizer.peak_lr=0.01 "
    "--set batch.sequences=16 --set batch.per_device=8 --set validation.every=3 "
    "--set checkpoint.every=3 --set logging.every=1"
)
"""Of `train`: six steps."""
LOSS = 7.44358
"""Of the sixth step of roberta_tiny, whatever the ranks, the stage and the interruptions."""
ADAM = "--set optimizer.kind=adamw --set optimizer.peak_lr=0.002"
ARMS = (
    "--recipe roberta_tiny --set batch.sequences=16 --set encoder.layers=1 --arm usual --arm low "
    "--set optimizer.peak_lr=1e-4 --corpus news --input news.jsonl --tokenizer bpe-tokenizer "
    "--seeds 2 --train-steps 4"
)
"""Of `ablate`: two arms of a RoBERTa with one layer."""
MIXTURE = '[{"corpus": "cc-news", "weight": 3}, {"corpus": "stories", "weight": 1}]'
PHASE_OF_16 = '{"steps": 3, "sequence_length": 16, "sequences": 16}'
PHASE_OF_32 = '{"steps": 3, "sequence_length": 32, "sequences": 16}'
TUNE = "--seeds 1 --epochs 1 --rows 16 --baselines majority --dev-share 0.25"
"""Of `finetune`: one seed, seconds."""
STARS = "--task classification --train reviews.csv --text text --target stars"

PREPARATIONS = {
    "bpe-tokenizer": "train_tokenizer --corpus sample --recipe roberta_tiny --output bpe-tokenizer",
    "wordpiece-tokenizer": """
        train_tokenizer --corpus sample --recipe bert_tiny --output wordpiece-tokenizer""",
    "cased-tokenizer": """
        train_tokenizer --corpus sample --recipe spanbert_tiny --output cased-tokenizer""",
    "unigram-tokenizer": """
        train_tokenizer --corpus sample --recipe albert_tiny --output unigram-tokenizer""",
    "shards": f"prepare --corpus news --input news.jsonl {TINY} --output shards",
    "more-shards": f"prepare --corpus more --input more.jsonl {TINY} --output more-shards",
    "short-shards": f"""
        prepare --corpus news --input news.jsonl {TINY} --set data.sequence_length=16 \\
            --output short-shards""",
    "drawn-shards": f"""
        prepare --corpus news --input news.jsonl {TINY} --set data.mask_mode=per-epoch \\
            --set data.duplicates=0 --output drawn-shards""",
    "two-shards": f"""
        prepare --corpus both --input cc-news=news.jsonl stories=more.jsonl {TINY} \\
            --output two-shards""",
    "bert-shards": """
        prepare --corpus news --input news.jsonl --recipe bert_tiny --workers 1 \\
            --tokenizer wordpiece-tokenizer --output bert-shards""",
    "albert-shards": """
        prepare --corpus news --input news.jsonl --recipe albert_tiny --workers 1 \\
            --tokenizer unigram-tokenizer --output albert-shards""",
    "electra-shards": """
        prepare --corpus news --input news.jsonl --recipe electra_tiny --workers 1 \\
            --tokenizer wordpiece-tokenizer --output electra-shards""",
    "spanbert-shards": """
        prepare --corpus news --input news.jsonl --recipe spanbert_tiny --workers 1 \\
            --tokenizer cased-tokenizer --output spanbert-shards""",
    "modernbert-shards": """
        prepare --corpus news --input news.jsonl --recipe modernbert_tiny --workers 1 \\
            --tokenizer bpe-tokenizer --output modernbert-shards""",
    "run": f"train roberta_tiny --data shards --output run {SIX}",
    "exported": "export run --output exported",
    "ablation": f"ablate {ARMS} --output ablation",
    "tuned": f"""
        finetune exported {STARS} {TUNE} --output tuned""",
}
"""What rows need and share: the name of a file or folder, and the lines that make it."""

READING = [
    # --- prepare: every format of inputs, see pipeline/ingest/documents/README.md
    row(
        "prepare JSON lines",
        f"prepare --corpus own --input news.jsonl {TINY} --output out",
        ("out/manifest.json", "totals.documents", 300),
        ("out/documents.parquet", "rows", 300),
        ("out/rows", "validation-00000.arrow"),
        ("out/mask-9", "train-00000.arrow"),
        ("out/tokenizer", "tokenizer.json"),
    ),
    *(
        row(
            f"prepare JSON lines in {end}",
            f"prepare --corpus own --input news.jsonl.{end} {TINY} --output out",
            ("out/manifest.json", "totals.documents", 300),
        )
        for end in ("gz", "zst", "xz", "bz2")
    ),
    *(
        row(
            f"prepare {kind}",
            f"prepare --corpus own --input {name} {TINY} --output out",
            ("out/manifest.json", "totals.documents", 40),
        )
        for kind, name in {
            "a JSON array": "array.json",
            "Parquet": "news.parquet",
            "Arrow": "news.arrow",
            "CSV": "news.csv",
            "CSV with semicolons": "semicolons.csv",
            "TSV": "news.tsv",
            "text between blank lines": "blank.txt",
            "a tar": "files.tar",
            "a zip": "files.zip",
            "wikiextractor's JSON": "wiki_00",
            "a folder of web pages": "site",
        }.items()
    ),
    row(
        "prepare tars in a compressed tar",
        f"prepare --corpus own --input tars.tar.xz more.jsonl {TINY} --output out",
        ("out/manifest.json", "totals.documents", 102),
    ),
    row(
        "prepare text by lines",
        f"prepare --corpus own --input stories.txt --plain-text lines {TINY} --output out",
        ("out/manifest.json", "totals.documents", 40),
    ),
    row(
        "prepare a document per file",
        f"prepare --corpus own --input files --plain-text file {TINY} --output out",
        ("out/manifest.json", "totals.documents", 100),
    ),
    row(
        "prepare books without their licences",
        f"prepare --corpus bookcorpus --input books {TINY} --output out",
        ("out/manifest.json", "totals.documents", 12),
        "cut",
    ),
    row(
        "skip a licence among texts",
        "mkdir in\ncp blank.txt in/stories.txt\ncp stories.txt in/LICENSE.txt\n"
        f"prepare --corpus own --input in {TINY} --output out",
        ("out/manifest.json", "totals.documents", 40),
    ),
    row(
        "skip labels beside texts in a tar",
        "cp -rL files in\ncp stories.txt in/labels.yaml\ntar -cf in.tar in\n"
        f"prepare --corpus own --input in.tar {TINY} --output out",
        ("out/manifest.json", "totals.documents", 100),
    ),
    row(
        "prepare a dump of a wiki",
        f"prepare --corpus wikipedia --input dump.xml {TINY} --output out",
        ("out/manifest.json", "corpora.wikipedia.documents", 40),
        ("out/manifest.json", "corpora.wikipedia.dropped", {"redirect": 1, "not an article": 1}),
    ),
    row(
        "prepare a compressed dump",
        f"prepare --corpus wikipedia --input dump.xml.bz2 {TINY} --output out",
        ("out/manifest.json", "totals.documents", 40),
    ),
    row(
        "prepare a WARC file",
        f"prepare --corpus cc-news --input crawl.warc.gz {TINY} --output out",
        ("out/manifest.json", "corpora.cc-news.documents", 40),
    ),
    row(
        "prepare a WET file",
        f"prepare --corpus cc-news --input crawl.wet.gz {TINY} --output out",
        ("out/manifest.json", "totals.documents", 40),
    ),
    row(
        "prepare the sample, with a tokenizer of its own",
        "prepare --corpus sample --recipe roberta_tiny --workers 1",
        ("root/shards/sample-*/manifest.json", "corpora.#", 5),
        ("root/shards/sample-*/manifest.json", "tokenizer.size", (2000, 2048)),
        ("root/tokenizers", ""),
        slow=True,
    ),
    row(
        "prepare text of a nested field",
        f"prepare --corpus own --input nested.jsonl --text-field a.b {TINY} --output out",
        ("out/manifest.json", "totals.documents", 40),
    ),
    row(
        "prepare what a function makes of documents",
        f"prepare --corpus own --input news.jsonl --map tidy.py:tidy {TINY} --output out",
        ("out/manifest.json", "totals.documents", 289),
    ),
    row(
        "prepare a group of corpora",
        f"prepare --corpus both --input cc-news=news.jsonl stories=more.jsonl {TINY} --output out",
        ("out/manifest.json", "corpora.cc-news.documents", 300),
        ("out/manifest.json", "corpora.stories.documents", 100),
        ("out/manifest.json", "shards.#", 4),
    ),
    row(
        "prepare a corpus for each folder",
        f"prepare --corpus own --input languages --by-folder {TINY} --output out",
        ("out/manifest.json", "corpora.#", 2),
        ("out/manifest.json", "corpora.de-web.documents", 30),
    ),
    row(
        "count bad records",
        f"prepare --corpus own --input bad.jsonl --max-bad-fraction 0.1 {TINY} --output out",
        ("out/manifest.json", "totals.documents", 97),
        ("out/manifest.json", "corpora.own.bad.#", 2),
    ),
    row(
        "name a line that is in another encoding",
        f"prepare --corpus own --input latin.txt --plain-text lines {TINY} --output out",
        "latin.txt:3",
        code=2,
    ),
    row(
        "allow unknown characters",
        "prepare --corpus own --input chinese.jsonl --recipe bert_tiny --workers 1 "
        "--tokenizer wordpiece-tokenizer --allow-unknown --output out",
        ("out/manifest.json", "corpora.own.unknown.characters", (1000, 99999)),
    ),
]

PREPARING = [
    # --- prepare: rows and masks, see pipeline/data/rows/README.md
    *(
        row(
            f"rows of {format}",
            f"prepare --corpus own --input news.jsonl {TINY} --output out "
            f"--set data.format={format} {more}",
            ("out/manifest.json", "data.format", format),
            fact,
        )
        for format, more, fact in (
            ("doc_sentences", "", ("out/manifest.json", "totals.sequences", (1, 9999))),
            (
                "single_segment",
                "--set data.segments.short_share=0.1",
                ("out/manifest.json", "totals.sequences", (1, 9999)),
            ),
            (
                "segment_pair",
                "--set data.segments.label=next",
                ("out/manifest.json", "corpora.own.packed.repeated_tokens", (1, 99999)),
            ),
            (
                "sentence_pair",
                "--set data.segments.label=next",
                ("out/manifest.json", "totals.sequences", (1, 9999)),
            ),
        )
    ),
    *(
        row(
            f"masks by {scheme}",
            f"prepare --corpus own --input news.jsonl {TINY} --output out "
            f"--set data.masking={scheme} --set data.duplicates=2 {more}\n"
            "inspect out --verify --workers 1",
            "masks match their keys (2 masks)",
        )
        for scheme, more in {
            "token": "",
            "whole_word": "",
            "ngram": "",
            "span": "",
            "electra": "--set data.masks.random_share=0 --set data.masks.mask_share=0.85",
        }.items()
    ),
    row(
        "random tokens as frequent as in the text",
        f"prepare --corpus own --input news.jsonl {TINY} --output out "
        "--set data.masks.random_ids=unigram",
        ("out", "token_counts.bin"),
    ),
    row("no stored masks", "inspect drawn-shards --verify --workers 1", "verified"),
    row(
        "compressed masks",
        f"prepare --corpus own --input news.jsonl {TINY} --compression zstd --output out",
        ("out/manifest.json", "compression", "zstd"),
    ),
    row(
        "a corpus to evaluate on",
        f"prepare --corpus own --input more.jsonl {TINY} --set data.validation_fraction=1 "
        "--output out",
        ("out/manifest.json", "shards.*.split", ["validation"]),
    ),
    # --- prepare: selection, see pipeline/data/selection/README.md
    row(
        "drop exact copies",
        f"prepare --corpus own --input copies.jsonl --dedup exact {TINY} --output out",
        ("out/manifest.json", "totals.documents", 120),
    ),
    row(
        "drop near-copies",
        f"prepare --corpus own --input copies.jsonl --dedup near {TINY} --output out\n"
        "inspect copies.jsonl --corpus own --decisions",
        "near-duplicate",
        ("out/manifest.json", "totals.documents", 100),
    ),
    row(
        "drop documents with evaluation text",
        f"prepare --corpus own --input news.jsonl --decontaminate quiz {TINY} --output out",
        ("out/manifest.json", "totals.documents", 299),
    ),
    row(
        "exclude documents by id",
        f"prepare --corpus own --input news.jsonl --exclude ids.txt {TINY} --output out",
        ("out/manifest.json", "totals.documents", 298),
        ("out/manifest.json", "corpora.own.dropped.excluded", 2),
    ),
    row(
        "keep a budget of words",
        f"prepare --corpus own --input news.jsonl --most-words 3000 {TINY} --output out",
        ("out/manifest.json", "corpora.own.words", (2900, 3000)),
    ),
    *(
        row(
            f"filter by {rule}",
            f"prepare --corpus own --input mixed.jsonl --filter {rule} {TINY} --output out",
            ("out/manifest.json", "totals.documents", kept),
        )
        for rule, kept in {
            "min-words=60": 120,
            "max-words=9": 10,
            "min-letters=0.8": 110,
            "max-repeated=0.3": 120,
            "language=en": 120,
            "c4": 100,
            "gopher-quality": 90,
            "fineweb": 100,
        }.items()
    ),
    # --- prepare: how it runs, see pipeline/data/README.md
    row(
        "start again",
        f"prepare --corpus news --input news.jsonl {TINY} --output shards",
        "nothing to do",
    ),
    row(
        "the same shards from two workers",
        "prepare --corpus news --input news.jsonl --recipe roberta_tiny --workers 2 "
        "--tokenizer bpe-tokenizer --output out\ndiff -r -x .inputs.json out shards",
    ),
    row(
        "the same shards from parts",
        f"prepare --corpus news --input news.jsonl {TINY} --output out --part 1/2\n"
        f"prepare --corpus news --input news.jsonl {TINY} --output out --part 2/2\n"
        "diff -r -x .inputs.json -x .work out shards",
    ),
    row(
        "the same shards from MPI ranks",
        "mpiexec 2 prepare --corpus news --input news.jsonl --recipe roberta_tiny "
        "--tokenizer bpe-tokenizer --output out\ndiff -r -x .inputs.json -x .work out shards",
    ),
    row(
        "estimate a preparation",
        f"prepare --corpus own --input news.jsonl {TINY} --dry-run --output out",
        "documents",
        NOTHING,
    ),
    row(
        "prepare for the run of an earlier run",
        "prepare --corpus news --input news.jsonl --recipe run/run.json --tokenizer bpe-tokenizer "
        "--workers 1 --output out\ndiff -r -x .inputs.json -x manifest.json out shards",
    ),
    # --- other commands about text
    row(
        "train a WordPiece tokenizer of a size",
        "train_tokenizer --corpus own --input news.jsonl --kind wordpiece --vocab-size 300 "
        "--sample-bytes 1e5 --set data.lower_case=true --output out\ninspect out",
        "wordpiece, uncased, 300 ids",
    ),
    row("train a unigram tokenizer", "inspect unigram-tokenizer", "unigram, uncased, 2,0"),
    row(
        "inspect shards",
        "inspect shards --split validation --sequence 3 --tokens 4",
        "300 documents",
        "sequence 3 of validation",
        "news.jsonl@",
    ),
    row("verify shards", "inspect shards --verify --workers 1", "masks match their keys"),
    row(
        "find damaged shards",
        "cp -rL shards out\n"
        "truncate --size=-9 out/mask-0/train-00000.arrow\n"
        "inspect out --verify --workers 1",
        "mask-0/train-00000.arrow",
        code=2,
    ),
    row(
        "inspect documents",
        "inspect news.jsonl --samples 2",
        "300 kept, 100.0%",
    ),
    row(
        "inspect copies",
        "mkdir in\ncp more.jsonl in/a.jsonl\ncp more.jsonl in/b.jsonl\ncp more.jsonl in/c.jsonl\n"
        "inspect in",
        "66.7% of those kept are exact copies",
    ),
    row(
        "inspect what rules would drop",
        "inspect mixed.jsonl --corpus own --filter gopher-repetition --map tidy.py:tidy",
        "gopher-repetition: over 16 %",
    ),
]

RUNS = [
    # --- train: every family, from shards to scores
    *(
        row(
            f"train {family}",
            f"train {family}_tiny --data {shards} --output out {SIX}\n"
            "export out --output model\nevaluate model --data "
            f"{shards} --json",
            ("out/metrics.jsonl", "step", 6),
            ("out/metrics.jsonl", "loss", loss),
            ("model/config.json", "architectures.0", architecture),
            ("-", "loss", (5, 90)),
        )
        for family, shards, architecture, loss in (
            ("roberta", "shards", "RobertaForMaskedLM", LOSS),
            ("bert", "bert-shards", "BertForPreTraining", 7.95918),
            ("albert", "albert-shards", "AlbertForPreTraining", 6.01528),
            ("electra", "electra-shards", "ElectraForPreTraining", 27.19334),
            ("spanbert", "spanbert-shards", "BertForMaskedLM", 10.51422),
            ("modernbert", "modernbert-shards", "ModernBertForMaskedLM", 7.51997),
        )
    ),
    # --- train: memory and ranks, see ds_configs/README.md
    *(
        row(
            f"train on two ranks at {ds}",
            f"torchrun 2 train roberta_tiny --data shards --output out --ds {ds} {SIX}",
            ("out/metrics.jsonl", "loss", LOSS),
            ("out/checkpoints", "latest"),
        )
        for ds in ("zero0", "zero1", "zero2", "zero3", "ds.json")
    ),
    row(
        "train with AdamW",
        f"train roberta_tiny --data shards --output out {SIX} {ADAM}",
        ("out/metrics.jsonl", "loss", 6.95653),
    ),
    row(
        "train with StableAdamW",
        f"train roberta_tiny --data shards --output out {SIX} "
        "--set optimizer.kind=stable_adamw --set optimizer.peak_lr=0.002 "
        "--set optimizer.clip_norm=0",
        ("out/metrics.jsonl", "loss", 6.98920),
    ),
    row(
        "train with another schedule",
        f"train roberta_tiny --data shards --output out {SIX} --set schedule.kind=cosine",
        ("out/metrics.jsonl", "loss", 7.44557),
    ),
    row(
        "train at a constant rate that falls at the end",
        f"train roberta_tiny --data shards --output out {SIX} "
        "--set schedule.kind=warmup_stable_decay --set schedule.decay_steps=3 "
        "--set schedule.decay_shape=one_minus_sqrt",
        ("out/metrics.jsonl", "loss", 7.44039),
    ),
    row(
        "train in bf16",
        f"train roberta_tiny --data shards --output out {SIX} --set precision=bf16",
        ("out/metrics.jsonl", "loss", (6, 8)),
    ),
    # --- train: stop and resume, see pipeline/training/run_directory/README.md
    row(
        "resume a run",
        f"train roberta_tiny --data shards --output out {SIX} --stop-at 3\n"
        f"train roberta_tiny --data shards --output out {SIX}",
        ("out/metrics.jsonl", "step", 6),
        ("out/metrics.jsonl", "loss", LOSS),
    ),
    row(
        "resume on two ranks at another stage",
        f"train roberta_tiny --data shards --output out {SIX} --stop-at 3\n"
        f"torchrun 2 train roberta_tiny --data shards --output out --ds zero3 {SIX}",
        ("out/metrics.jsonl", "loss", LOSS),
    ),
    row(
        "resume where the newest checkpoint is gone",
        f"train roberta_tiny --data shards --output out {SIX} --set checkpoint.every=2\n"
        "rm -r out/checkpoints/step-00000006\n"
        f"train roberta_tiny --data shards --output out {SIX} --set checkpoint.every=2",
        "resuming after step 4",
        ("out/metrics.jsonl", "rows", 6),
        ("out/metrics.jsonl", "loss", LOSS),
    ),
    row(
        "the slowest of three ranks",
        f"torchrun 3 train roberta_tiny --data shards --output out {SIX}",
        ("out/metrics.jsonl", "slowest_ratio", (1.0, 99.0)),
        ("out/metrics.jsonl", "loss", LOSS),
    ),
    row(
        "a requeued job takes its run up at once",
        "cp -rL run out\ncp lease.json out/lease.json\n"
        f"SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1 train roberta_tiny --data shards --output out {SIX}",
        "nothing to do",
    ),
    row(
        "say which ranks are missing",
        "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 "
        f"TENFOLD_TIMEOUT_SECONDS=1 train roberta_tiny --data shards --output out {SIX}",
        "rank(s) 1 of 2",
        NOTHING,
        code=70,
    ),
    row(
        "a finished run has nothing to do",
        f"train roberta_tiny --data shards --output run {SIX}",
        "nothing to do",
    ),
    row(
        "stop before the time is over",
        f"train roberta_tiny --data shards --output out {SIX} --hours 0.0025",
        ("out", "INTERRUPTED"),
        code=75,
    ),
    row(
        "a run that diverges",
        f"train roberta_tiny --data shards --output out {SIX} --set steps=30 "
        "--set optimizer.kind=adamw --set optimizer.peak_lr=1e30",
        "10 steps in a row",
        code=3,
    ),
    row(
        "go back before a spike, once",
        f"train roberta_tiny --data shards --output out {SIX} --set steps=20 {ADAM} "
        "--set optimizer.peak_lr=0.1 --set spikes.deviations=0.1 --set spikes.window=3 "
        "--set spikes.rollbacks=1",
        "spikes.rollbacks=1 are used up",
        code=3,
        goes=True,
    ),
    # --- train: data
    row(
        "train in phases",
        f"train roberta_tiny --data shards short-shards --output out {SIX} "
        f"--set 'phases=[{PHASE_OF_16}]'",
        "phase 2: steps 4 to 6, sequences of 32",
        ("out/metrics.jsonl", "phase", 2),
        ("out/metrics.jsonl", "sequence_length", 32),
        ("out/metrics.jsonl", "loss", 7.44018),
    ),
    row(
        "phases of other masks and dropout",
        f"train roberta_tiny --data drawn-shards --output out {SIX} "
        "--set data.mask_mode=per-epoch --set data.duplicates=0 "
        f"--set 'phases=[{PHASE_OF_32}]' "
        '--set \'phases.0.settings=["data.masks.rate=0.3", "encoder.dropout=0.1"]\'',
        ("out/metrics.jsonl", "phase", 2),
        ("out/metrics.jsonl", "loss", 7.41470),
    ),
    row(
        "train on a mixture",
        f"train roberta_tiny --data two-shards --output out {SIX} --set 'batch.mixture={MIXTURE}'",
        ("out/metrics.jsonl", "validation_loss/stories", (6, 8)),
        ("out/metrics.jsonl", "loss", 7.35668),
    ),
    row(
        "train on a mixture by an exponent",
        f"train roberta_tiny --data shards more-shards --output out {SIX} "
        "--set batch.mixture_exponent=0.3",
        ("out/metrics.jsonl", "validation_loss/more", (6, 8)),
        ("out/metrics.jsonl", "loss", 7.35281),
    ),
    row(
        "train on one of two corpora",
        f"train roberta_tiny --data two-shards --output out {SIX} "
        "--set 'batch.corpora=[\"cc-news\"]'",
        ("out/metrics.jsonl", "step", 6),
        ("out/metrics.jsonl", "loss", 7.34452),
    ),
    row(
        "train passes over the data",
        "train roberta_tiny --data more-shards --output out --set epochs=0.5 --set logging.every=1",
        ("out/metrics.jsonl", "step", 4),
        ("out/metrics.jsonl", "loss", 7.45426),
    ),
    row(
        "small data: a budget of words of BabyLM's six files, and passes over it",
        f"""
        prepare --recipe babylm_small --corpus babylm --input train_10M/ --most-words 12e3 \\
            {SHRUNK_DATA} --workers 1
        train babylm_small --data root/shards/babylm-* --output out \\
            --set 'checkpoint.at_words=10e3..90e3/20e3' {SHRUNK_DATA} {SHRUNK}""",
        ("root/shards/babylm-*/manifest.json", "corpora.babylm.words", (11_800, 12_000)),
        ("root/shards/babylm-*/manifest.json", "corpora.babylm.plain_text.files", 6),
        ("out/metrics.jsonl", "epoch", 10),
        ("out/metrics.jsonl", "words", (100_000, 120_000)),
    ),
    row(
        "a batch of tokens that grows",
        f"train roberta_tiny --data shards --output out {SIX} --set batch.step_tokens=512 "
        "--set batch.warmup_steps=2 --set batch.first_sequences=8",
        ("out/metrics.jsonl", "step", 6),
        ("out/metrics.jsonl", "loss", 7.38607),
    ),
    row(
        "documents that do not see each other",
        f"train roberta_tiny --data shards --output out {SIX} --set batch.attention=document",
        ("out/metrics.jsonl", "step", 6),
        ("out/metrics.jsonl", "loss", 7.44361),
    ),
    row(
        "held-out masks at a rate of their own",
        f"train roberta_tiny --data shards --output out {SIX} --set validation.mask_rate=0.3",
        ("out/metrics.jsonl", "validation_mask_rate", 0.3),
        ("out/metrics.jsonl", "validation_loss", 7.36307),
    ),
    row(
        "copies of shards on the node",
        f"train roberta_tiny --data shards --output out {SIX} --stage staged",
        ("out/metrics.jsonl", "loss", LOSS),
        goes=True,
    ),
    # --- train: what it starts from, what it writes
    row(
        "start from a model",
        f"train roberta_tiny --init exported --data shards --output out {SIX}",
        "held-out loss",
        "no forgetting",
        ("out/metrics.jsonl", "loss", 7.26986),
    ),
    row(
        "a general sample before and after training",
        f"train roberta_tiny --init exported --data shards --output out {SIX}\n"
        "grep --count general_ out/metrics.jsonl",
        "2",
    ),
    row(
        "start from a model with more layers and longer rows",
        f"train roberta_tiny --init exported --data shards --output out {SIX} --new positions "
        "--set encoder.positions=64 --set encoder.layers=3",
        ("out/metrics.jsonl", "step", 6),
        ("out/metrics.jsonl", "loss", 7.25563),
    ),
    row(
        "start from a model with another vocabulary",
        "train_tokenizer --corpus own --input news.jsonl --vocab-size 500 "
        "--recipe roberta_tiny --output small\n"
        "prepare --corpus own --input news.jsonl --recipe roberta_tiny --tokenizer small "
        "--set data.vocab_size=500 --workers 1 --output own\n"
        f"train roberta_tiny --init exported --data own --output out {SIX} --new vocabulary "
        "--set data.vocab_size=500",
        ("out/metrics.jsonl", "loss", 5.62103),
    ),
    row(
        "continue a model of transformers",
        "prepare --corpus mine --input news.jsonl --recipe ./exported --workers 1 --output mine\n"
        f"train ./exported --data mine --output out {SIX} --set precision=fp32",
        ("out/run.json", "run.name", "exported"),
        ("out/metrics.jsonl", "rows", 7),
    ),
    row(
        "plan of a continued model for more passes than are usual",
        "prepare --corpus mine --input news.jsonl --recipe ./exported --workers 1 --output mine\n"
        "train ./exported --data mine --output out --set steps=90000 --dry-run",
        "90,000 steps",
    ),
    row(
        "fork a run with more data",
        f"train roberta_tiny --from run/checkpoints/step-00000006 --data shards more-shards "
        f"--output out {SIX} --set steps=8",
        ("out/metrics.jsonl", "step", 8),
        ("out/checkpoints", "step-00000008"),
        ("out/metrics.jsonl", "loss", 7.31516),
    ),
    row(
        "plan of a step that is larger than the data",
        f"train roberta_tiny --data more-shards --output out {SIX} --set batch.sequences=1024 "
        "--dry-run",
        "more than once",
        NOTHING,
    ),
    row(
        "plan of a run",
        f"train roberta_tiny --data shards --output out {SIX} --dry-run --ranks 8 --verbose",
        "zero_optimization",
        NOTHING,
    ),
    row(
        "trace steps",
        f"train roberta_tiny --data shards --output out {SIX} --profile",
        ("out", "profile"),
        slow=True,
    ),
    row(
        "checkpoints that stay",
        f"train roberta_tiny --data shards --output out {SIX} --set checkpoint.keep=2 "
        "--set checkpoint.every=1 --set checkpoint.keep_every=3",
        ("out/checkpoints", "step-00000003"),
        ("out/checkpoints", "step-00000005"),
    ),
    row(
        "checkpoints at counts of words",
        f"train roberta_tiny --data shards --output out {SIX} --set checkpoint.keep=1 "
        "--set checkpoint.at_words=400..900/400",
        ("out/checkpoints", "step-00000002"),
        ("out/checkpoints", "step-00000004"),
        ("out/metrics.jsonl", "words", (1000, 1600)),
        "step 3: word frequencies alone give ",
    ),
    row(
        "a curve of grammar",
        f"train roberta_tiny --data shards --output out {SIX} --set validation.grammar=pairs",
        ("out/metrics.jsonl", "validation_grammar", (0, 1)),
    ),
    # --- export, evaluate
    row(
        "export for transformers",
        "export run --output out --language en",
        ("out", "model.safetensors"),
        ("out", "tokenizer.json"),
        ("out/README.md", 'language: ["en"]'),
        ("out/tokenizer_config.json", "model_max_length", 32),
    ),
    row(
        "export every checkpoint",
        "export run --all --output out",
        ("out/step-00000003", "config.json"),
        ("out/step-00000006", "config.json"),
    ),
    row(
        "export a step, and with scores",
        "export run --step 3 --output early\nexport run --scores tuned/scores.json --output out",
        ("early", "model.safetensors"),
        ("out/README.md", '16 rows, 1.0 epochs"}]}]}]\n---'),
    ),
    row("score a run on held-out rows", "evaluate run --data shards --json", ("-", "loss", (6, 8))),
    row(
        "score at another mask rate",
        "evaluate exported --data shards --mask-rate 0.3 --json",
        ("-", "mask_rate", 0.3),
    ),
    row(
        "score sequences one by one",
        "evaluate exported --data shards --per-sequence scores.parquet --json",
        ("-", "loss", (6, 8)),
    ),
    row(
        "score grammar by token",
        "evaluate exported --grammar pairs --json",
        ("-", "grammar.pll", "token"),
    ),
    row(
        "score grammar by word, beside word frequencies",
        "evaluate run --grammar pairs --pll word --data shards",
        "word",
    ),
    row(
        "score BabyLM's sets",
        "evaluate exported --babylm babylm --predictions out --json",
        ("-", "babylm.sets.blimp_filtered.overall.pairs", 1),
        ("out/blimp/blimp_filtered/predictions.json", "agreement"),
    ),
    row("fill masks", "evaluate exported --cloze cloze.txt", "opens"),
    row(
        "pseudo-perplexity",
        "evaluate exported --pseudo-perplexity sentences.txt --json",
        ("-", "pseudo_perplexity", (100, 9999)),
    ),
]

AROUND = [
    # --- finetune, see pipeline/downstream/README.md
    row(
        "fine-tune for classes",
        "report run --scores tuned/scores.json --text",
        "classification",
        ("tuned/scores.json", "scores.accuracy.n", 1),
        ("tuned/model", "model.safetensors"),
    ),
    row(
        "fine-tune for numbers",
        "finetune exported --task regression --train numbers.csv --text text --target score "
        f"{TUNE} --output out",
        ("out/scores.json", "scores.pearson.n", 1),
    ),
    row(
        "fine-tune for choices",
        "finetune exported --task choices --train choices.csv --text text --choices first second "
        f"--target right {TUNE} --output out",
        ("out/scores.json", "scores.accuracy.n", 1),
    ),
    row(
        "fine-tune for tags",
        f"finetune exported --task tags --train entities.jsonl --text words --target tags {TUNE} "
        "--output out",
        ("out/scores.json", "scores.entity_f1.n", 1),
    ),
    row(
        "fine-tune for spans",
        "finetune exported --task spans --train answers.csv --text question text --target answer "
        f"--group author {TUNE} --output out",
        ("out/scores.json", "scores.f1.median", 1.0),
    ),
    row(
        "fine-tune for a published task",
        "finetune exported --task squad1 --data squad --seeds 1 --epochs 1 --rows 16 "
        "--baselines bag --output out",
        ("out", "predictions.jsonl"),
    ),
    row(
        "fine-tune seeds in parts",
        f"finetune exported {STARS} {TUNE} --seeds 2 --output out --part 1/2\n"
        f"finetune exported {STARS} {TUNE} --seeds 2 --output out --part 2/2",
        ("out/scores.json", "runs.#", 2),
    ),
    row(
        "fine-tune from another fine-tuning",
        f"finetune exported {STARS} {TUNE} --init-from tuned "
        "--learning-rate 1e-3 --length 32 --train-rows 20 --first-seed 7 --labels 1 2 "
        "--protocol small --output out",
        ("out/scores.json", "scores.accuracy.n", 1),
        ("out/scores.json", "data.train", 20),
        ("out/scores.json", "runs.0.seed", 7),
    ),
    # --- ablate
    row(
        "compare two arms",
        f"cp -rL ablation out\nablate {ARMS} --collect --output out\nreport --ablation out --text",
        "usual",
        ("out/ablation.json", "baseline", "usual"),
        ("out/ablation.json", "runs.#", 6),
    ),
    row(
        "estimate an ablation",
        f"ablate {ARMS} --dry-run --output out",
        "usual: 4 runs of 4 steps, 0 done",
        slow=True,
    ),
    row(
        "one run of an ablation",
        f"ablate {ARMS} --only low:1 --output out",
        ("out/runs/low/seed-1", "result.json"),
        slow=True,
    ),
    row(
        "compare arms of a file",
        "ablate --arms arms.py --corpus news --input news.jsonl --tokenizer bpe-tokenizer "
        "--seeds 2 --train-steps 2 --set batch.sequences=16 --output out",
        ("out/ablation.json", "arms.*.name", ["usual", "four-heads"]),
        slow=True,
    ),
    # --- plan, doctor, report, status, tenfold
    row(
        "plan a run for GPUs",
        "plan roberta_base --tokens 36e9 --nodes 8 --gpus-per-node 4 --nics 2 --gpu h200 "
        "--price 2.5 --json",
        ("-", "sections.memory.2.value", 31181856),
        ("-", "sections.memory.13.value", 25261905368),
        ("-", "sections.memory.14.value", 851),
        ("-", "sections.step.2.value", 0.0147354),
        NOTHING,
    ),
    row(
        "plan a run for a CPU", "plan roberta_tiny --data shards --cpu --cores 2", "hours", NOTHING
    ),
    row(
        "check this machine",
        "doctor --recipe roberta_tiny --data shards --output out --json",
        ("-", "ranks.#", 1),
    ),
    row("check this machine in full", "doctor --full --brief", "", slow=True),
    row(
        "report a run as a page",
        "report run --scores tuned/scores.json --output page.html",
        ("page.html", "<svg"),
        ("page.html", "classification"),
    ),
    row("report a run as text", "report run --text", "Curves"),
    row(
        "report a run whose history is no history",
        "cp -rL run out\ntruncate --size=1T out/history.tsv\nreport out --text",
        "Curves",
    ),
    row("status of a run", "status run", "finished"),
    row("status of two runs", "cp -rL run second\nstatus run second", "run ", "second"),
    row("status of runs for scripts", "status run --json", ("-", "0.progress.step", 6)),
    row("list recipes", "tenfold recipes", "modernbert_large"),
    row("list settings", "tenfold settings bert_base optimizer", "optimizer.peak_lr"),
    row("list commands", "tenfold", "train_tokenizer"),
    row("version", "tenfold --version", "tenfold 0."),
    row("inspect a run", "inspect run", "run"),
    row("inspect a model", "inspect exported", "transformers"),
]

FEATURES = [*READING, *PREPARING, *RUNS, *AROUND]

NO_ROW = {
    # downloads, which tests/pipeline/remote and tests/pipeline/ingest/corpora have servers for
    *("--fetch", "--dump"),
    "--skip-missing",
    # texts that are too large for a row
    "--allow-short",
    # minutes, or a detail of a feature with a row
    *("--grid", "--dev", "--answer-start", "--bf16", "--scale", "--tune"),
    *("--finetune", "--finetune-seeds"),
}
"""Options without a row."""
