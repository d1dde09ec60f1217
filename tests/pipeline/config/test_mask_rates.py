from pipeline.config.mask_rates import at_rate, masked


def test_rates_in_words() -> None:
    assert (masked(0.15), masked(0.3), masked(0.125)) == (
        "15 % masked", "30 % masked", "12.5 % masked",
    )  # fmt: skip
    assert (at_rate(0.4), at_rate(0.0), at_rate(None)) == (" (40 % masked)", "", "")
