"""Prepared directories for phases that differ in more than length, made of the rows of others."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.data.shards.corpus_spans import corpus_spans
from pipeline.data.shards.manifest import read_manifest


def drawn_anew(directory: Path, target: Path) -> Path:
    """The same rows without stored training masks: they are drawn in each epoch."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["duplicates"] = manifest["data"]["duplicates"] = 0
        manifest["data"]["mask_mode"] = "per-epoch"
        for shard in manifest["shards"]:
            shard["masks"] = shard["masks"][: shard["split"] != "train"]

    return _changed(directory, target, change)


def of_corpus(directory: Path, corpus: str, target: Path) -> Path:
    """The training rows of one corpus, and all held-out rows, as if they were of that corpus."""
    whole = read_manifest(directory)
    train = whole.of("train")
    own = {shard.file for shard in train[corpus_spans(directory, whole, train)[corpus]]}

    def change(manifest: dict[str, Any]) -> None:
        manifest["corpora"] = {corpus: manifest["corpora"][corpus]}
        manifest["shards"] = [
            shard
            for shard in manifest["shards"]
            if shard["split"] != "train" or shard["file"] in own
        ]

    return _changed(directory, target, change)


def of_rate(directory: Path, rate: float, target: Path) -> Path:
    """The same rows and masks, said to be of another rate."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["data"]["masks.rate"] = rate

    return _changed(directory, target, change)


def in_languages(directory: Path, languages: dict[str, str], target: Path) -> Path:
    """The same rows, with the languages of some corpora recorded."""

    def change(manifest: dict[str, Any]) -> None:
        for corpus, language in languages.items():
            manifest["corpora"][corpus]["language"] = language

    return _changed(directory, target, change)


def _changed(directory: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    shutil.copytree(directory, target, copy_function=os.link)
    path = target / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.unlink()  # a hard link
    path.write_text(json.dumps(manifest))
    return target
