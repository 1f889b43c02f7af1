"""When a further seed of what leads is worth its time."""

from autotune.tuning.judging.reliance import Reliance


def test_a_seed_is_paid_by_as_many_seconds_of_reliance():
    reliance = Reliance()
    assert not reliance.pays("large", 6.0)
    reliance.follow("large", 4.0)
    assert not reliance.pays("large", 6.0)
    reliance.follow("large", 4.0)
    assert reliance.pays("large", 6.0)
    assert not reliance.pays("large", 6.0), "what paid for a seed pays for no other"
    reliance.follow("large", 4.0)
    assert reliance.pays("large", 6.0), "what was left over counts"


def test_each_kind_of_training_pays_for_itself():
    reliance = Reliance()
    reliance.follow("large", 10.0)
    assert not reliance.pays("small", 1.0)


def test_no_more_is_spent_on_seeds_than_on_what_relied_on_them():
    reliance, spent = Reliance(), 0.0
    for _ in range(100):
        reliance.follow("large", 2.0)
        while reliance.pays("large", 6.0):
            spent += 6.0
    assert 200.0 - 6.0 <= spent <= 200.0
