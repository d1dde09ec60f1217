from pipeline.recipes import RECIPES, format_recipes


def test_every_recipe_has_a_line_below_its_family() -> None:
    lines = format_recipes().splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(RECIPES)
    families = [line.split(" (")[0] for line in lines if not line.startswith("  ")]
    assert families == ["RoBERTa", "BERT", "ALBERT", "ELECTRA", "SpanBERT", "ModernBERT", "BabyLM"]
    first_of_albert = lines.index(next(line for line in lines if line.startswith("ALBERT"))) + 1
    assert lines[first_of_albert].split()[0] == "albert_tiny"
    adam = "RoBERTa-base with the paper's Adam: 8,192 x 500K steps."
    assert f"  {'roberta_base_published':27}  {adam}" in lines
    # the table fits a screen, and each line says what it is
    assert max(map(len, lines)) <= 100 and len(lines) <= 70
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)
