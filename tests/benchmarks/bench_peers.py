"""Other libraries on equal input: whole commands in turn, with their CPU, memory and recall.

    python -m tests.benchmarks.bench_peers --peers ENV/bin/python ... [--megabytes 300]

The environments hold `datatrove[io,processing]`, `datasets`, `rensa`, `text-dedup`,
`mosaicml-streaming`, `litdata`, `transformers` and torch. Each library is taken from the first that
has it; one that none has is named. `text-dedup` needs `datasets<3` beside it: elsewhere it ends
with "cannot pickle 'KeyedRef' object".

- ids: JSON lines to ids. Ours is all of `prepare`: ids in rows of 512 with ten masks each.
  datatrove writes one stream of ids; `datasets` maps and groups in rows of 512. Neither masks.
- copies: JSON lines to the documents that stay, of a corpus whose copies are known. All use 256
  permutations, words in fives and 32 bands of 8, or the nearest that the library offers.
- loader: batches of 64 x 512 with masks, shuffled, from files written before the clock starts.

One worker, one thread. Seconds are of the CPU, of a command with all its processes, start
included; the peak is the kernel's figure of the largest of them. The loader's are those of the
batches after the first hundred.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.benchmarks import bench_dedup, bench_loader
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.timing import Alone, parse, run_alone
from tests.benchmarks.vocabulary import bench_vocabulary

LETTERS = str.maketrans("0123456789", "etaoinshrd")
"""Makes words of planted.py distinct for datatrove, which takes all digits for one."""
BYTES_A_DOCUMENT = 1156  # of the corpus with known copies
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}

DATATROVE_IDS = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
source, work, tokenizer = sys.argv[1:]
LocalPipelineExecutor([
    JsonlReader(source, glob_pattern="*.jsonl"),
    DocumentTokenizer(work + "/ids", tokenizer_name_or_path=tokenizer + "/tokenizer.json",
                      eos_token="</s>", shuffle_documents=False, shuffle_chunk_size=None),
], logging_dir=work + "/logs").run()
"""

DATASETS_IDS = """
import sys
from pathlib import Path
import datasets
from transformers import PreTrainedTokenizerFast
datasets.disable_progress_bars()
source, work, folder = sys.argv[1:]
tokenizer = PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
raw = datasets.Dataset.from_json([str(p) for p in Path(source).glob("*.jsonl")], cache_dir=work)

def tokenize(batch):
    return {"input_ids": tokenizer(batch["text"])["input_ids"]}

def group(batch):
    joined = [i for ids in batch["input_ids"] for i in ids]
    total = len(joined) // 512 * 512
    return {"input_ids": [joined[i : i + 512] for i in range(0, total, 512)]}

raw.map(tokenize, batched=True, remove_columns=raw.column_names).map(group, batched=True)
"""

DATATROVE_COPIES = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
source, work = sys.argv[1:]
config = MinhashConfig(n_grams=5, num_buckets=32, hashes_per_bucket=8)
read = JsonlReader(source, glob_pattern="*.jsonl")
steps = [
    (1, [read, MinhashDedupSignature(work + "/signatures", config=config)]),
    (32, [MinhashDedupBuckets(work + "/signatures", work + "/buckets", config=config)]),
    (1, [MinhashDedupCluster(work + "/buckets", work + "/remove", config=config)]),
    (1, [read, MinhashDedupFilter(work + "/remove"),
         JsonlWriter(work + "/kept", compression=None)]),
]
for number, (tasks, steps) in enumerate(steps):
    LocalPipelineExecutor(steps, tasks=tasks, logging_dir=work + f"/logs{number}").run()
"""

RENSA_COPIES = """
import json, re, sys
from pathlib import Path
import rensa
source, work = map(Path, sys.argv[1:])
(work / "kept").mkdir()
index = rensa.RMinHashLSH(threshold=0.75, num_perm=256, num_bands=32)
made = []
with (work / "kept" / "0.jsonl").open("w") as kept:
    for path in source.glob("*.jsonl"):
        for line in path.open():
            words = re.findall("[a-z0-9]+", json.loads(line)["text"].lower())
            sketch = rensa.RMinHash(num_perm=256, seed=0)
            fives = range(max(1, len(words) - 4))
            sketch.update([" ".join(words[i : i + 5]) for i in fives])
            if not any(made[i].jaccard(sketch) >= 0.75 for i in index.query(sketch)):
                kept.write(line)
            index.insert(len(made), sketch)
            made.append(sketch)
"""

TEXT_DEDUP_COPIES = """
import runpy, sys
from pathlib import Path
import datasets
source, work = sys.argv[1:]
file = next(Path(source).glob("*.jsonl"))
sys.argv = ["minhash", "--path", "json", "--data_files", str(file), "--split", "train",
    "--column", "text", "--ngram", "5", "--num_perm", "256", "--b", "32", "--r", "8",
    "--cache_dir", work + "/cache", "--output", work + "/out", "--num_proc", "1",
    "--batch_size", "1000"]
try:
    runpy.run_module("text_dedup.minhash", run_name="__main__")
except SystemExit:
    pass
datasets.load_from_disk(work + "/out").to_json(work + "/kept/0.jsonl")
"""

BATCHES_OF_PEERS = """
import json, os, sys, time
import numpy as np, torch
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models
torch.set_num_threads(1)
rows_file, work, name = sys.argv[1:]
rows = np.fromfile(rows_file, np.uint16).reshape(-1, 512)
words = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}
words |= {f"w{i}": i for i in range(5, 50265)}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<unk>")), bos_token="<s>",
    pad_token="<pad>", eos_token="</s>", unk_token="<unk>", mask_token="<mask>")
collator = DataCollatorForLanguageModeling(tokenizer)

def masked(items):
    ids = torch.from_numpy(np.stack([np.asarray(i) for i in items]).astype(np.int64))
    inputs, labels = collator.torch_mask_tokens(ids, special_tokens_mask=ids < 5)
    return inputs

def batches():
    if name == "mosaicml-streaming":
        from streaming import MDSWriter, StreamingDataset
        with MDSWriter(out=work + "/mds", columns={"ids": "ndarray:uint16:512"}) as out:
            for row in rows:
                out.write({"ids": row})
        data = StreamingDataset(local=work + "/mds", shuffle=True, batch_size=64)
        loader = torch.utils.data.DataLoader(
            data, batch_size=64, collate_fn=lambda items: masked([i["ids"] for i in items]))
    else:
        import litdata
        litdata.optimize(each, [rows_file], output_dir=work + "/lit", chunk_bytes="64MB",
                         num_workers=1, item_loader=litdata.TokensLoader(block_size=512))
        data = litdata.StreamingDataset(
            work + "/lit", item_loader=litdata.TokensLoader(block_size=512), shuffle=True)
        loader = litdata.StreamingDataLoader(data, batch_size=64, collate_fn=masked)
    while True:
        yield from loader

def each(path):
    for row in np.fromfile(path, np.uint16).reshape(-1, 512):
        yield torch.from_numpy(row)

if __name__ == "__main__":
    made = batches()
    for _ in range(100):
        next(made)
    began_at, tokens = time.process_time(), 0
    while time.process_time() - began_at < 5:
        tokens += next(made).numel()
    print(json.dumps([tokens, time.process_time() - began_at]), flush=True)
    os._exit(0)
"""

Commands = dict[str, list[object]]
"""By library."""


def in_turn(
    commands: Commands, work: Path, rounds: int, look: Callable[[str, Alone], object] | None = None
) -> dict[str, list[Alone]]:
    """Run every command once a round, with an empty folder `work`; `look` sees each result while
    its files are there."""
    found: dict[str, list[Alone]] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                result = run_alone(*command, **ONE_THREAD)
            except RuntimeError as error:
                print(f"{name}: failed: {str(error).strip().splitlines()[-1]}", flush=True)
                continue
            if look:
                look(name, result)
            found.setdefault(name, []).append(result)
    return found


def spread(values: Iterable[float]) -> str:
    """`2.30 (2.21 to 2.35)`: median and range."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.2f} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def report(title: str, size: float, found: dict[str, list[Alone]]) -> None:
    """Print MB/s per CPU second and the peak of each command."""
    for name, results in found.items():
        print(
            f"{title}: {name}: {spread(size / 1e6 / result.cpu for result in results)} MB/s per "
            f"CPU second, peak {max(result.peak for result in results):,.0f} MB",
            flush=True,
        )


def ids(peers: dict[str, str], work: Path, size: int, rounds: int) -> None:
    """JSON lines to ids."""
    source, made, tokenizer = work / "source", work / "made", work / "tokenizer"
    source.mkdir()
    bench_vocabulary(tokenizer)
    written = write_jsonl(source / "in.jsonl", size)
    ours = (sys.executable, "-m", "pipeline.prepare", "--workers", 1, "--output", made / "out")
    commands: Commands = {
        "ours": [*ours, "--tokenizer", tokenizer, "--corpus", source / "in.jsonl"]
    }
    for name, script in (("datatrove", DATATROVE_IDS), ("datasets", DATASETS_IDS)):
        if name in peers:
            commands[name] = [peers[name], "-c", script, source, made, tokenizer]
    report("ids", written, in_turn(commands, made, rounds))


def copies(peers: dict[str, str], work: Path, size: int, rounds: int) -> None:
    """JSON lines to the documents that stay."""
    source, made = work / "planted", work / "made"
    source.mkdir()
    path = source / "in.jsonl"
    planted = bench_dedup.write_corpus(path, size // BYTES_A_DOCUMENT)
    rows = [json.loads(line) for line in path.open()]
    texts = ({"id": row["id"], "text": row["text"].translate(LETTERS)} for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in texts))
    judged: dict[str, str] = {}

    def look(name: str, result: Alone) -> None:
        if name == "ours":
            dropped = bench_dedup.dropped_lines(result.said)
        else:
            files = (made / "kept").iterdir()
            dropped = {*range(len(rows))}
            dropped -= {int(json.loads(line)["id"]) for file in files for line in file.open()}
        judged[name] = bench_dedup.judged(dropped, planted)

    commands: Commands = {"ours": [sys.executable, "-c", bench_dedup.STAGE, path, made]}
    for name, script in (
        ("datatrove", DATATROVE_COPIES),
        ("rensa", RENSA_COPIES),
        ("text-dedup", TEXT_DEDUP_COPIES),
    ):
        if name in peers:
            commands[name] = [peers[name], "-c", script, source, made]
    report("copies", path.stat().st_size, in_turn(commands, made, rounds, look))
    for name, words in judged.items():
        print(f"copies: {name}: {words}")


def loader(peers: dict[str, str], work: Path, size: int, rounds: int) -> None:
    """Shuffled batches with masks."""
    del size  # the same rows as bench_loader's
    shards, made, script = work / "shards", work / "made", work / "batches.py"
    bench_loader.rows_of(bench_loader.random_shards(shards)).tofile(work / "rows.bin")
    script.write_text(BATCHES_OF_PEERS)  # litdata starts a process that imports it
    ours = (
        "import json, sys; from pathlib import Path; from tests.benchmarks import bench_loader; "
        "print(json.dumps(bench_loader.tokens_and_seconds(Path(sys.argv[1]))))"
    )
    commands: Commands = {"ours": [sys.executable, "-c", ours, shards]}
    for name in ("mosaicml-streaming", "litdata"):
        if name in peers:
            commands[name] = [peers[name], script, work / "rows.bin", made, name]
    for name, results in in_turn(commands, made, rounds).items():
        pairs = [json.loads(result.said.splitlines()[-1]) for result in results]
        speeds = (tokens / seconds / 1e6 for tokens, seconds in pairs)
        print(f"loader: {name}: {spread(speeds)} M tokens/s per core")


PARTS = {"ids": ids, "copies": copies, "loader": loader}
LIBRARIES = ("datatrove", "datasets", "rensa", "text-dedup", "mosaicml-streaming", "litdata")


def find(environments: list[str]) -> dict[str, str]:
    """By library: the first of these pythons that has it. Prints its version."""
    ask = (
        "import importlib.metadata as m, json, sys\n"
        "found = {d.metadata['Name']: d.version for d in m.distributions()}\n"
        "print(json.dumps({n: found[n] for n in sys.argv[1:] if n in found}))"
    )
    where: dict[str, str] = {}
    for python in environments:
        command = [python, "-c", ask, *LIBRARIES]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, version in json.loads(said).items():
            if where.setdefault(name, python) == python:
                print(f"{name} {version}", flush=True)
    for name in LIBRARIES:
        if name not in where:
            print(f"{name}: not installed")
    return where


def main() -> None:
    given = parse(__doc__, peers=[sys.executable], megabytes=300, rounds=3, parts=[*PARTS])
    peers = find(given.peers)
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    for name in given.parts:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](peers, Path(folder), given.megabytes * 1_000_000, given.rounds)
    print(f"load after: {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
