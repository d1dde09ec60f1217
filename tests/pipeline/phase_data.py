"""Prepared directories for phases that differ in more than length, made of the rows of others."""

import os
import shutil
from pathlib import Path

from pipeline.data.shards.corpus_spans import corpus_spans
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from tests.pipeline.data.small_shards import edited


def linked(directory: Path, target: Path) -> Path:
    """The same files by hard links, with a manifest of its own."""
    shutil.copytree(directory, target, copy_function=os.link)
    (target / MANIFEST).unlink()
    shutil.copyfile(directory / MANIFEST, target / MANIFEST)
    return target


def drawn_anew(directory: Path, target: Path) -> Path:
    """The same rows without stored training masks: they are drawn in each epoch."""
    with edited(linked(directory, target)) as manifest:
        manifest["duplicates"] = manifest["data"]["duplicates"] = 0
        manifest["data"]["mask_mode"] = "per-epoch"
        for shard in manifest["shards"]:
            shard["masks"] = shard["masks"][: shard["split"] != "train"]
    return target


def of_corpus(directory: Path, corpus: str, target: Path) -> Path:
    """The training rows of one corpus, and all held-out rows, as if they were of that corpus."""
    whole = read_manifest(directory)
    train = whole.of("train")
    own = {shard.file for shard in train[corpus_spans(directory, whole, train)[corpus]]}
    with edited(linked(directory, target)) as manifest:
        manifest["corpora"] = {corpus: manifest["corpora"][corpus]}
        manifest["shards"] = [
            shard
            for shard in manifest["shards"]
            if shard["split"] != "train" or shard["file"] in own
        ]
    return target


def of_rate(directory: Path, rate: float, target: Path) -> Path:
    """The same rows and masks, said to be of another rate."""
    with edited(linked(directory, target)) as manifest:
        manifest["data"]["masks.rate"] = rate
    return target


def in_languages(directory: Path, languages: dict[str, str], target: Path) -> Path:
    """The same rows, with the languages of some corpora recorded."""
    with edited(linked(directory, target)) as manifest:
        for corpus, language in languages.items():
            manifest["corpora"][corpus]["language"] = language
    return target
