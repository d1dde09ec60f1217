"""Mistakes in `model/`."""

FAULTS = {
    "model/attention.py": [
        ("scores are not scaled", "(key_nHLK * key_nHLK.shape[-1] ** -0.5)", "key_nHLK"),
        (
            "a window of one more",
            "& (apart_SS <= reach)",
            "& (apart_SS <= reach + 1)",
            "tests/model/test_rotary.py",
        ),
        ("flash attention on cards without it", "_capability(device) >= FLASH_CAPABILITY", "True"),
    ],
    "model/dropout.py": [
        ("kept values are not scaled up", ".mul_(kept_scale(probability))", ""),
        (
            "one level too few is dropped",
            "LOWEST + round(probability * LEVELS)",
            "LOWEST + round(probability * (LEVELS >> 1))",
        ),
    ],
    "model/encoder.py": [
        (
            "deep layers start as wide as shallow ones",
            "deviation /= (2 * config.layers) ** 0.5",
            "pass",
        ),
        (
            "a group shares the layer after its own",
            "return index // size * size",
            "return (index + 1) // size * size",
        ),
    ],
    "model/layers.py": [
        (
            "the gate is forgotten",
            "* gate_TF)",
            "* gate_TF.clamp(1, 1))",
            "tests/model/test_rotary.py",
        ),
    ],
    "model/rotary.py": [
        (
            "rotation in the wrong direction",
            "first * cos - second * sin",
            "first * cos + second * sin",
        ),
    ],
    "model/row_attention.py": [
        ("gradients lack the scale of dropout", "grad = grad * scale", "grad = grad * 1"),
    ],
    "model/pieces.py": [
        (
            "a span sees one key too few",
            "min(length, queries.stop + reach)",
            "min(length, queries.stop + reach - 1)",
            "tests/model/test_rotary.py",
        ),
    ],
    "model/objectives/flops.py": [
        (
            "attention counts half",
            "return 4 * config.width * seen",
            "return 2 * config.width * seen",
        ),
        (
            "the backward pass costs nothing",
            "return 3 * (tokens * per_token",
            "return 1 * (tokens * per_token",
        ),
    ],
    "model/objectives/masked_language.py": [
        (
            "kept words count as masked",
            "weights_K * (shown_K == inputs.mask_id)",
            "weights_K * (shown_K >= 0)",
        ),
        (
            "rows without a label count",
            "labelled_R = labels_R >= 0",
            "labelled_R = labels_R >= -1",
            "tests/model/hugging_face/test_families.py",
        ),
    ],
    "model/objectives/replaced_tokens.py": [
        (
            "a logit of 0 is suspected",
            "(logits.detach() > 0).float()",
            "(logits.detach() >= 0).float()",
        ),
        (
            "precision is of all words",
            "(suspected * replaced * weights).sum()",
            "(suspected * weights).sum()",
        ),
    ],
    "model/objectives/sampling.py": [
        ("a bit of the draws is lost", "_shift_right(words, 27)", "_shift_right(words, 28)"),
        (
            "the last block is left out",
            "return -(-words // size), size",
            "return words // size, size",
        ),
    ],
    "model/objectives/span_boundary.py": [
        (
            "places in a span count from 1",
            "place_K = positions_K - left_K - 1",
            "place_K = positions_K - left_K",
        ),
    ],
    "model/objectives/word_heads.py": [
        (
            "the bias has no gradient",
            "grad_KW.sum(0), *[None] * 5",
            "grad_KW.sum(0) * 0, *[None] * 5",
        ),
    ],
    "model/tasks/task_model.py": [
        ("a task of spans has one output", "return 2 if self.kind", "return 1 if self.kind"),
        (
            "the head learns as slowly as the last layer",
            "found.append(layers + 2)",
            "found.append(layers)",
        ),
    ],
    "model/hugging_face/config_json.py": [
        (
            "pad and position offset agree no more",
            "config.position_offset - 1 if family.after_pad",
            "config.position_offset if family.after_pad",
        ),
    ],
    "model/hugging_face/growth.py": [
        (
            "new layers copy their neighbour's group",
            "layer // size * their_size + layer % size",
            "(layer + 1) // size * their_size + layer % size",
        ),
    ],
    "model/hugging_face/tiling.py": [
        (
            "tiles begin in the middle",
            "(torch.arange(new // size) - offset)",
            "(torch.arange(new // size) - offset - 1)",
        ),
    ],
    "model/hugging_face/modern_settings.py": [
        (
            "layers with a window and without change places",
            "wanted = LOCAL if depth % every else GLOBAL",
            "wanted = GLOBAL if depth % every else LOCAL",
        ),
    ],
    "model/tasks/heads.py": [
        (
            "the last word of a row becomes its mean",
            "cu_seqlens[:-1].long(), means",
            "cu_seqlens[1:].long() - 1, means",
        ),
    ],
}
