"""A shard as a task of an executor: to verify, or to take documents from."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.data.shards.manifest import Shard


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard as a unit of work."""

    number: int
    """Index in the manifest."""
    shard: Shard

    @property
    def weight(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.shard.files())

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"shard {self.shard.file}"

    @property
    def marker(self) -> str:
        """Name of the file that exists once it is done, if it leaves one: a new shard's entry."""
        return f"shard-{self.number:06d}.json"
