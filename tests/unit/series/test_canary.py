from shoal.series.canary import canary_page


def test_without_a_canary_nothing_is_written() -> None:
    assert canary_page([], {}) == b""


def test_shares_and_returns_are_written_by_model() -> None:
    page = canary_page([("m", "2.0", 12.5)], {"m": 1, "n": 3}).decode()

    assert 'shoal_canary_weight_percent{model_name="m",model_version="2.0"} 12.5' in page
    assert 'shoal_canary_returns_total{model_name="m"} 1.0' in page
    assert 'shoal_canary_returns_total{model_name="n"} 3.0' in page
    assert "weight" not in canary_page([], {"m": 1}).decode()
