"""Bad input of every command: command lines, and a word of the error.

Each ends with exit code 2 and a message that names the offending value, and writes nothing, but for
what the next start of the same command takes up (`KEPT`). Of several lines the last one is bad. The
names of files are those of `texts.py` and of the preparations of `features.py`.
"""

from tests.end_to_end.features import ARMS, PHASE_OF_16, SIX, TINY

PREPARE = f"prepare --corpus own --output out {TINY} --input"
TRAIN = f"train roberta_tiny --data shards --output out {SIX}"
FINETUNE = "finetune exported --output out --seeds 1 --baselines majority"
OWN = f"{FINETUNE} --task classification --train reviews.csv --dev-share 0.25"

KEPT = r"/out/history\.tsv$|/out/\.work(/|$)|/out$"
"""What an error that is found late leaves: the list of starts of a run, finished work of shards."""

BAD_INPUT = {
    # --- tenfold
    "tenfold prepaer": "prepare",
    "tenfold settings roberta_bse": "roberta_base",
    "tenfold settings roberta_base optimzer": "optimzer",
    # --- prepare: words of the command line
    "prepare": "--corpus",
    f"{PREPARE} news.jsonl --corpus other": "other",
    f"{PREPARE} news.jsonl --inptu x": "--inptu",
    f"{PREPARE} news.jsonl --recipe roberta_tinny": "roberta_tinny",
    f"{PREPARE} news.jsonl --set data.vocabsize=3": "data.vocab_size",
    f"{PREPARE} news.jsonl --set data.duplicates=-1": "-1",
    f"{PREPARE} news.jsonl --set data.duplicates=many": "many",
    f"{PREPARE} news.jsonl --set data.masks.rate=1.5": "1.5",
    f"{PREPARE} news.jsonl --set data.masking=words": "words",
    f"{PREPARE} news.jsonl --set data.segments.draws=2": "data.segments.draws",
    f"{PREPARE} news.jsonl --set data.masking=electra": "random_share",
    f"{PREPARE} news.jsonl --set data.mask_mode=static": "data.duplicates=10",
    f"{PREPARE} news.jsonl --set data.sequence_length=64": "encoder.positions",
    f"{PREPARE} news.jsonl --set data.segments.label=next": "segment_pair",
    f"{PREPARE} news.jsonl --set nonsense": "nonsense",
    "prepare --corpus own --input news.jsonl --recipe nothing.json": "nothing.json",
    f"{PREPARE} news.jsonl --workers 0": "--workers",
    f"{PREPARE} news.jsonl --part 3/2": "3/2",
    f"{PREPARE} news.jsonl --max-bad-fraction 2": "2.0",
    f"{PREPARE} news.jsonl --most-words 0": "--most-words",
    f"{PREPARE} news.jsonl --filter min-word=5": "min-words",
    f"{PREPARE} news.jsonl --filter language=english": "english",
    f"{PREPARE} news.jsonl --dedup nearly": "nearly",
    f"{PREPARE} news.jsonl --exclude nothing.txt": "nothing.txt",
    f"{PREPARE} news.jsonl --exclude empty.jsonl": "empty.jsonl",
    f"{PREPARE} news.jsonl --exclude news.jsonl.gz": "news.jsonl.gz:1",
    f"{PREPARE} news.jsonl --decontaminate nothing": "nothing",
    f"{PREPARE} news.jsonl --map tidy.py:tidi": "tidi",
    f"{PREPARE} news.jsonl --map nothing.py:tidy": "nothing.py",
    f"{PREPARE} news.jsonl --allow-short": "--allow-short",
    f"{PREPARE} news.jsonl --compression gzip": "gzip",
    f"{PREPARE} news.jsonl --text-field story": "url",
    f"{PREPARE} news.jsonl --plain-text pages": "pages",
    f"{PREPARE} news.jsonl --tokenizer nothing": "nothing",
    f"{PREPARE} news.jsonl --tokenizer wordpiece-tokenizer": "wordpiece",
    f"{PREPARE} chinese.jsonl --recipe bert_tiny --tokenizer wordpiece-tokenizer": "--allow",
    "prepare --corpus cc-news --dump 2016-13": "2016-13",
    "prepare --corpus wikipedia --dump enwiki": "enwiki",
    "prepare --corpus 16gb --input wikipedia=dump.xml": "bookcorpus",
    # --- prepare: files
    f"{PREPARE} nothing.jsonl": "nothing.jsonl",
    f"{PREPARE} empty.jsonl": "empty.jsonl",
    f"{PREPARE} latin.jsonl": "iconv",
    f"{PREPARE} cut.jsonl.gz": "cut.jsonl.gz",
    f"{PREPARE} notes.pdf": "notes.pdf",
    f"{PREPARE} nested.jsonl": "nested.jsonl",
    f"{PREPARE} bad.jsonl": "bad.jsonl:98",
    f"{PREPARE} 'none-*.jsonl'": "none-*.jsonl",
    # --- train_tokenizer, inspect
    "train_tokenizer --corpus own --input news.jsonl": "--output",
    "train_tokenizer --corpus own --input news.jsonl --vocab-size 3 --output out": "3",
    "train_tokenizer --corpus own --input news.jsonl --kind words --output out": "words",
    "train_tokenizer --corpus own --input news.jsonl --sample-bytes 0 --output out": "0",
    "train_tokenizer --corpus own --input news.jsonl --output shards": "shards",
    "inspect nothing": "nothing",
    "inspect shards --sequence 99999999": "99999999",
    "inspect shards --split train --sequence 2009": "2009",
    "inspect shards --split test": "test",
    "inspect shards --corpus own": "--corpus",
    'cp -rL shards out\nsed -i \'s/"mask": 4/"mask": 5/\' out/manifest.json\n'
    "inspect out --verify --workers 1": "tokenizer.mask",
    "cp -rL shards out\nsed -i s:rows/train:rows/../rows/train: out/manifest.json\n"
    "inspect out": "not rows/NAME",
    "mkdir cache\nchmod o+w cache\nNUMBA_CACHE_DIR=cache inspect news.jsonl": "by everybody",
    # --- train
    "train roberta_tiny --output out": "--data",
    "train --data shards --output out": "RECIPE",
    "train roberta_tny --data shards --output out": "roberta_tiny",
    "train roberta_tiny --data nothing --output out": "nothing",
    "train roberta_tiny --data bert-shards --output out": "data.",
    "train bert_tiny --data shards --output out": "data.",
    "train roberta_tiny --data exported --output out": "exported",
    f"{TRAIN} --ds zero4": "zero4",
    f"{TRAIN} --ds bad-ds.json": "train_batch_size",
    f"{TRAIN} --stop-at 0": "--stop-at",
    f"{TRAIN} --hours 0": "--hours",
    f"{TRAIN} --ranks 8": "--dry-run",
    f"{TRAIN} --set steps=0": "steps",
    f"{TRAIN} --set optimizer.lr=1": "optimizer.peak_lr",
    f"{TRAIN} --set optimizer.peak_lr=-1": "-1",
    f"{TRAIN} --set optimizer.kind=adam": "adam",
    f"{TRAIN} --set encoder.heads=3": "encoder.heads",
    f"{TRAIN} --set precision=fp16": "fp16",
    f"{TRAIN} --set encoder.position_offset=1": "encoder.position_offset",
    f"{TRAIN} --set schedule.kind=inverse_sqrt --set schedule.warmup_steps=0": "warmup_steps",
    f"{TRAIN} --set checkpoint.keep_every=4": "keep_every",
    f"{TRAIN} --set objective.kind=mlm_pair": "data.segments.label",
    f"{TRAIN} --set objective.kind=mlm_sbo": "data.masking",
    f"{TRAIN} --set data.duplicates=20": "20",
    f"{TRAIN} --set 'batch.corpora=[\"other\"]'": "other",
    f"{TRAIN} --set 'phases=[{PHASE_OF_16}]' --set phases.0.steps=9": "phases",
    f"{TRAIN} --set 'phases=[{PHASE_OF_16}]'": "16",
    f"{TRAIN} --set 'logging.to=[\"paper\"]'": "paper",
    f"{TRAIN} --set validation.grammar=nothing": "nothing",
    f"{TRAIN} --init nothing": "nothing",
    f"{TRAIN} --init exported --set encoder.layers=1": "encoder.layers",
    f"{TRAIN} --new positions": "--init",
    f"{TRAIN} --from nothing": "nothing",
    "train_tokenizer --corpus own --input news.jsonl --recipe roberta_tiny --output other\n"
    "prepare --corpus own --input news.jsonl --recipe roberta_tiny --tokenizer other --workers 1 "
    f"--output own\ntrain roberta_tiny --from run --data own --output out {SIX} "
    "--set steps=8": "same tokenizer",
    f"cp -rL run out\n{TRAIN} --set steps=7": "steps=6",
    f"cp -rL run out\ncp lease.json out/lease.json\n{TRAIN}": "node9",
    f"cp -rL run out\ntrain roberta_tiny --data more-shards --output out {SIX}": "more-shards",
    # --- export, evaluate
    "export run": "--output",
    "export run --output exported": "exported",
    "export shards --output out": "shards",
    "export run --step 5 --output out": "5",
    "export run --language english --output out": "english",
    "export run --scores run/run.json --output out": "run.json",
    "evaluate exported": "--data",
    "evaluate nothing --data shards": "nothing",
    "evaluate exported --data bert-shards": "tokenizer",
    "evaluate exported --data shards --mask-rate 2": "2",
    "evaluate exported --grammar nothing": "nothing",
    "evaluate exported --grammar pairs --pll letter": "letter",
    "evaluate exported --cloze sentences.txt": "[MASK]",
    # --- finetune
    f"{FINETUNE} --task sst3 --data squad": "sst2",
    f"{FINETUNE} --task sst2 --data squad": "train.tsv",
    f"{OWN} --text text": "--target",
    f"{OWN} --text words --target stars": "words",
    f"{OWN} --text text --target stars --labels 1": "--labels",
    f"{OWN} --text text --target stars --seeds 0": "--seeds",
    f"{OWN} --text text --target stars --protocol berd": "berd",
    f"{OWN} --text text --target stars --init-from nothing": "nothing",
    f"{FINETUNE} --task regression --train reviews.csv --text text --target text "
    "--dev-share 0.25": "text",
    f"{FINETUNE} --task classification --train reviews.csv --text text --target stars": "--dev",
    # --- ablate
    "ablate roberta/maskings --corpus sample --output out": "roberta/masking",
    "ablate roberta/masking --scale tiny --corpus sample --output out": "tiny",
    f"ablate {ARMS} --seeds 0 --output out": "--seeds",
    f"ablate {ARMS} --arm usual --output out": "usual",
    f"ablate {ARMS} --set encoder.heads=3 --output out": "encoder.heads",
    f"ablate {ARMS} --only lowest:1 --output out": "lowest",
    "ablate --arms nothing.py --corpus sample --output out": "nothing.py",
    "ablate --recipe babylm_small --arm a --arm b --set optimizer.peak_lr=1e-3 --corpus sample "
    "--output out": "--train-steps",
    "ablate --recipe babylm_small --arm a --arm b --set epochs=3 --train-steps 5 --corpus sample "
    "--output out": "--train-steps",
    # --- plan, doctor, report, status
    "plan roberta_tiny --cpu": "--tokens",
    "plan roberta_tiny --tokens 5 --cpu": "5",
    "plan roberta_tiny --tokens 1e9 --gpu h900": "h900",
    "plan roberta_tiny --tokens 1e9 --cpu --nodes 0": "--nodes",
    "plan roberta_tiny --data nothing --cpu": "nothing",
    "doctor --set steps=3": "--recipe",
    "bash -c 'ulimit -n 200 && python -m pipeline.doctor'": "open files",
    "doctor --recipe bert_tiny --data shards": "shards fit the recipe",
    "report run": "--output",
    "report shards --text": "shards",
    "report run --output nothing/page.html": "nothing",
    "report run --scores run/run.json --text": "scores",
    "report --ablation run --text": "ablation.json",
    "status nothing": "nothing",
    "status shards": "shards",
    "status run/checkpoints": "inside a run",
}
