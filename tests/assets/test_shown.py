"""What an asset's page shows of statistics."""

from assets.shown import numbers


def test_numbers_have_six_digits_and_the_named_come_first() -> None:
    statistics = {
        "a": 1,
        "bad": True,
        "epochs": 0.7884443623348234,
        "list": [1],
        "memory": 1796882432,
        "name": "cpu",
        "none": None,
    }
    found = numbers(statistics, but=("a",), first=("name", "missing", "epochs"))
    assert list(found.items()) == [("name", "cpu"), ("epochs", 0.788444), ("memory", 1796882432)]
