"""The Hub's own library reads from a card's head what was written into it."""

from huggingface_hub import ModelCard

from pipeline.ingest.corpora.catalogue import CORPORA, SAMPLE_CORPORA
from pipeline.reporting import front_matter
from pipeline.reporting.score_files import BASELINE, Score

ODD = "a: \"b\" 'c' # - | \\ \n--- {} [] é 家 😀 \x07 \x85 \u2028 \ufeff null 1e-05"
SCORES = [
    Score("runs/a", "sst2: accuracy", 0.81234567, 0.78, 0.82, "5 seeds", "classification"),
    Score("runs/a", "validation mask loss", 0.00001, None, None, ""),
    Score("runs/a", "grammar: case", 0.7, 0.68, 0.72, "2,000 pairs"),
    Score("the commonest class", "sst2: accuracy", 0.51, None, None, BASELINE),
    Score("runs/a", "perplexity", float("inf"), None, None, ""),
    Score("runs/a", "perplexity", 1e300, None, None, ""),
]


def parsed(fields: dict[str, object]) -> ModelCard:
    return ModelCard(f"{front_matter.front_matter(fields)}\n\n# Title\n")


def test_any_text_survives() -> None:
    card = parsed({"license": ODD, "tags": [ODD, "no", "1e3", "~"], "language": []})
    assert card.data.license == ODD
    assert card.data.tags == [ODD, "no", "1e3", "~"]
    assert card.data.language is None and card.text == "\n# Title\n"


def test_scores_are_results() -> None:
    card = parsed({"model-index": front_matter.model_index(f"run {ODD}", SCORES)})
    assert card.data.model_name == f"run {ODD}"
    found = [
        (r.task_type, r.dataset_name, r.metric_type, r.metric_value, r.metric_name)
        for r in card.data.eval_results or ()
    ]
    assert found == [
        ("text-classification", "sst2", "accuracy", 0.8123,
         "accuracy; 95 % interval 0.7800 to 0.8200; 5 seeds"),
        ("fill-mask", "held-out documents", "validation_mask_loss", 0.0, "validation mask loss"),
        ("fill-mask", "minimal pairs: case", "accuracy", 0.7,
         "case; 95 % interval 0.6800 to 0.7200; 2,000 pairs"),
    ]  # fmt: skip
    assert front_matter.model_index("run", SCORES[3:]) == []


def test_licences_have_their_fields_and_named_corpora_their_licence_and_dataset() -> None:
    other = {"license": "other"}
    for licences, expected in (
        (["CC BY 2.5", "CC BY 2.5"], {"license": "cc-by-2.5"}),
        (["public domain"], other | {"license_name": "public-domain"}),
        (["public domain", "CC BY-SA 3.0"], other | {"license_name": "cc-by-sa-3.0-public-domain"}),
        (["CC BY 2.5", "unknown"], {"license": "unknown"}),
        (["third-party pages"], {"license": "unknown"}),
        (["(c) ©"], other | {"license_name": "c"}),
        ([], {"license": "unknown"}),
    ):
        assert front_matter.licence_fields(licences) == expected
    known = {corpus.licence for corpus in (*CORPORA.values(), *SAMPLE_CORPORA.values())}
    placed = {*front_matter.HUB_LICENCES, *front_matter.UNCLEAR}
    assert known - {"public domain"} == placed - {"unknown"}
    wikipedia = ("wikipedia", "CC BY-SA")
    given = [wikipedia, wikipedia, ("stories", "public domain"), ("mine", "unknown")]
    assert front_matter.hub_datasets(given) == ["wikimedia/wikipedia"]
