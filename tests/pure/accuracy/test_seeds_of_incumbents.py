"""A further seed of an incumbent is worth its time once much rests on it."""

from autotune.accuracy.accuracy_verdict import SeedBudget


def test_a_seed_is_paid_by_as_many_seconds_as_an_incumbent():
    seed_budget = SeedBudget()
    assert not seed_budget.pays("large", 6.0)
    seed_budget.follow("large", 4.0)
    assert not seed_budget.pays("large", 6.0)
    seed_budget.follow("large", 4.0)
    assert seed_budget.pays("large", 6.0)
    assert not seed_budget.pays("large", 6.0), "what paid for a seed pays for no other"
    seed_budget.follow("large", 4.0)
    assert seed_budget.pays("large", 6.0), "what was left over counts"


def test_each_kind_of_training_pays_for_itself():
    seed_budget = SeedBudget()
    seed_budget.follow("large", 10.0)
    assert not seed_budget.pays("small", 1.0)


def test_no_more_is_spent_on_seeds_than_on_what_relied_on_them():
    seed_budget, spent = SeedBudget(), 0.0
    for _ in range(100):
        seed_budget.follow("large", 2.0)
        while seed_budget.pays("large", 6.0):
            spent += 6.0
    assert 200.0 - 6.0 <= spent <= 200.0
