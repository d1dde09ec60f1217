from pathlib import Path

from pipeline.data.shards.manifest import read_manifest
from pipeline.data.shards.shard_task import ShardTask


def test_weights_are_bytes_and_markers_sort_as_shards_do(prepared: Path) -> None:
    shards = read_manifest(prepared).shards
    tasks = [ShardTask(number, shard) for number, shard in enumerate(shards)]
    files = [file.file for shard in shards for file in shard.files()]
    on_disk = sum((prepared / file).stat().st_size for file in files)
    assert sum(task.weight for task in tasks) == on_disk > 0
    assert [task.name for task in tasks] == [f"shard {shard.file}" for shard in shards]
    markers = [ShardTask(number, shards[0]).marker for number in (2, 10, 100_000)]
    assert markers == sorted(set(markers))
