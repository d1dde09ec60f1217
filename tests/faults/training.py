"""Mistakes in `pipeline/loading/`, `planning/`, `cluster/`, `training/` and `execution/`."""

FAULTS = {
    "pipeline/loading/order.py": [
        (
            "the last row of a batch is read twice",
            "first, min(BATCH_ROWS, row_starts[piece + 1]",
            "first, min(BATCH_ROWS - 1, row_starts[piece + 1]",
        ),
        (
            "a mixture starts its cycles again",
            "indices[chosen] = seen + earlier[",
            "indices[chosen] = seen + 0 * earlier[",
        ),
        (
            "skipped places are read",
            "positions + (positions >= begin) * (end - begin)",
            "positions + (positions > begin) * (end - begin)",
        ),
    ],
    "pipeline/loading/loader.py": [
        (
            "off by one in the seek",
            "for step, rows in self._resolve_steps(consumed, number, pool):",
            "for step, rows in self._resolve_steps(consumed + (consumed > 0), number, pool):",
        ),
        (
            "every pass shows the same mask",
            "(samples.pass_number - 1) % cycles[samples.dataset]",
            "(samples.pass_number * 0) % cycles[samples.dataset]",
        ),
    ],
    "pipeline/loading/decode.py": [
        (
            "swapped segments lose their separator",
            "shift = size_b + separators if source < slots_a",
            "shift = size_b if source < slots_a",
        ),
    ],
    "pipeline/loading/micro_batch.py": [
        (
            "a piece too few has room",
            "self._most_pieces(len(bounds) - 1) + 1, tokens)",
            "self._most_pieces(len(bounds) - 1), tokens)",
        ),
    ],
    "pipeline/loading/proportions.py": [
        (
            "halves are rounded down",
            "(rest * left + whole // 2) // whole",
            "(rest * left) // whole",
        ),
    ],
    "pipeline/loading/resolve.py": [
        (
            "an id beyond the vocabulary is read",
            "return bool(largest < vocabulary)",
            "return bool(largest <= vocabulary)",
        ),
        (
            "a column that is too short is read",
            "or stop > column.items:",
            "or stop > column.items + 9:",
        ),
    ],
    "pipeline/loading/staging.py": [
        (
            "the next pass's masks are not copied",
            "(pass_number - 1) % stored, pass_number % stored)",
            "(pass_number - 1) % stored,)",
        ),
        (
            "the node's disk is filled",
            "if file.bytes + self._reserve > free:",
            "if file.bytes > free:",
        ),
    ],
    "pipeline/planning/schedule.py": [
        (
            "the peak comes a step late",
            "return peak * step / warmup",
            "return peak * (step - 1) / warmup",
        ),
        (
            "cosine falls too far",
            "(1 + cos(pi * (1 - left))) / 2",
            "(1 + cos(pi * (1 - left))) / 3",
        ),
        ("one minus sqrt falls from the end", "share = 1 - sqrt(1 - left)", "share = sqrt(left)"),
    ],
    "pipeline/planning/phases.py": [
        ("phases meet in a step", "steps {self.begin + 1:,} to", "steps {self.begin:,} to"),
    ],
    "pipeline/planning/phase_plan.py": [
        (
            "a wrong pad is planned",
            "run.encoder.position_offset != pad + 1:",
            "run.encoder.position_offset > pad + 1:",
        ),
    ],
    "pipeline/planning/doubts.py": [
        (
            "a batch of more than the data",
            "if plan.sequences > plan.train_sequences:",
            "if plan.sequences > 9 * plan.train_sequences:",
        ),
    ],
    "pipeline/training/optimizer/lamb_variants.py": [
        (
            "no trust ratio",
            "return min(max(weight_norm / update_norm, self.least_ratio), self.largest_ratio)",
            "return 1.0",
        ),
        (
            "bias correction counts one update too many",
            'updates=updates if self.corrects == "moments"',
            'updates=updates + 1 if self.corrects == "moments"',
            "tests/pipeline/training/optimizer",
        ),
    ],
    "pipeline/training/optimizer/optimizer.py": [
        (
            "gradients are clipped by twice the norm",
            "settings.clip_norm / self.gradient_norm if",
            "settings.clip_norm / self.gradient_norm / 2 if",
        ),
        ("StableAdamW is never stable", "rate / max(1.0, value) for value", "rate for value"),
        ("vectors decay", "part.decay or self.settings.decay_vectors", "True"),
    ],
    "pipeline/training/optimizer/cpu_update.py": [
        (
            "the end of a job is not updated",
            "stop = min(start + CHUNK, end)",
            "stop = min(start + CHUNK, end - 1)",
        ),
    ],
    "pipeline/training/optimizer/fragments.py": [
        (
            "a fragment overlaps the next",
            "numel = min(part, parameter.ds_numel - start)",
            "numel = min(part, parameter.ds_numel)",
            "tests/pipeline/training/optimizer",
        ),
    ],
    "pipeline/training/step_count.py": [
        (
            "a rank is dropped from the loss count",
            "torch.tensor([int(stop), loss, *counts], device=self.device)",
            "torch.tensor([int(stop), loss, *(n * (not dist.get_rank()) for n in counts)])",
        ),
        ("ranks differ in micro-batches", "(most, dist.ReduceOp.MAX)", "(most, dist.ReduceOp.MIN)"),
    ],
    "pipeline/training/loss_watch.py": [
        ("losses that are not finite are kept", "min(whole, NOT_FINITE), count", "0, count"),
    ],
    "pipeline/training/run_progress.py": [
        (
            "skipped steps are not counted in a row",
            "0 if updated else self.skipped_in_a_row + 1",
            "0 if updated else self.skipped_in_a_row",
        ),
    ],
    "pipeline/training/recovery.py": [
        (
            "rollbacks never end",
            "if progress.rollbacks >= most:",
            "if progress.rollbacks > most + 9:",
        ),
    ],
    "pipeline/training/checkpoints/publish.py": [
        (
            "one checkpoint too few is kept",
            "max(0, len(older) + 1 - keep)",
            "max(0, len(older) + 2 - keep)",
        ),
        ("those to keep forever are removed", "if not keep_every or other % keep_every]", "]"),
    ],
    "pipeline/training/checkpoints/fragment_files.py": [
        (
            "a fragment is read from its start",
            "skip = (first - tensor.start) * ITEM_BYTES",
            "skip = (first - first) * ITEM_BYTES",
        ),
        (
            "lost fsync",
            "os.fsync(file.fileno())\n    except OSError as error:\n        raise CheckpointError",
            "pass\n    except OSError as error:\n        raise CheckpointError",
            "tests/pipeline/training/checkpoints",
        ),
    ],
    "pipeline/training/checkpoints/weight_file.py": [
        ("weights are not aligned", 'text += b" " * (-len(text) % 8)', "pass"),
    ],
    "pipeline/training/checkpoints/read.py": [
        (
            "the oldest checkpoint is taken",
            "for step in sorted(steps, reverse=True)]",
            "for step in sorted(steps)]",
        ),
    ],
    "pipeline/training/run_directory/metrics_log.py": [
        (
            "lines after the checkpoint stay",
            'if line["step"] <= restored_step]',
            'if line["step"] <= restored_step + 1]',
        ),
    ],
    "pipeline/training/run_directory/lease.py": [
        (
            "a requeued job waits for itself",
            "_restart_count() > holder.slurm_restart_count",
            "_restart_count() < holder.slurm_restart_count",
        ),
    ],
    "pipeline/training/run_directory/run_json.py": [
        (
            "another tokenizer continues a run",
            'and (name == "tokenizer" or not forked):',
            "and not forked:",
        ),
    ],
    "pipeline/training/run_directory/stragglers.py": [
        (
            "the fastest rank is called slow",
            "slowest = max(range(len(seconds))",
            "slowest = min(range(len(seconds))",
        ),
    ],
    "pipeline/training/weights/model_folders.py": [
        (
            "a folder that differs is written",
            "if not difference <= LARGEST_DIFFERENCE:",
            "if difference < 0:",
            "tests/pipeline/test_export.py",
        ),
    ],
    "pipeline/training/weights/token_pieces.py": [
        (
            "pieces are read a letter too far",
            "begin, mark = end or begin + 1, CONTINUATION",
            "begin, mark = (end or begin) + 1, CONTINUATION",
        ),
        (
            "a letter that is lacking starts as the unknown token",
            "if each != theirs.unk]",
            "if True]",
        ),
    ],
    "pipeline/training/loop.py": [
        (
            "the last step is not saved",
            "if self.saver.saved_step != self.progress.step:",
            "if False:",
        ),
        (
            "a step has the rate of the one before",
            "self.engine.step(learning_rate(self.run, self.progress.step + 1))",
            "self.engine.step(learning_rate(self.run, max(1, self.progress.step)))",
        ),
    ],
    "pipeline/cluster/stop_request.py": [
        (
            "a stop comes too late to save",
            "return now + self.needed() > self._ends_at",
            "return now > self._ends_at",
        ),
    ],
    "pipeline/cluster/rendezvous.py": [
        ("it is not said who is missing", "if not missing:", "if missing:"),
    ],
    "pipeline/cluster/watchdog.py": [
        (
            "a long step is a hang",
            "max(self._hang_seconds, PATIENCE * self._longest)",
            "min(self._hang_seconds, PATIENCE * self._longest)",
        ),
    ],
    "pipeline/execution/workers.py": [
        (
            "a lock that another holds is ignored",
            "if not shared.waits and file and try_lock(file) is False:",
            "if False:",
        ),
        ("a part does another's share", "if lightest == number - 1:", "if lightest == number:"),
    ],
    "pipeline/execution/work_directory.py": [
        ("two processes publish", "return bool(try_lock(self.lock))", "return True"),
    ],
    "pipeline/execution/threads.py": [
        ("all files are read ahead", "if len(waiting) >= _AHEAD:", "if False:"),
    ],
    "pipeline/training/validation/before_after.py": [
        ("learning is called forgetting", "round(after - before, 4)", "round(before - after, 4)"),
    ],
    "pipeline/training/validation/validator.py": [
        ("the general sample delays every validation", "if parts and at_end else", "if parts else"),
        (
            "a step without a validation owes none",
            'and any(name.startswith("validation_") for name in last)',
            "",
        ),
    ],
}
