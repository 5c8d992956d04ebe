import numpy as np
import pytest
from scipy import sparse

from coaltree.records import RecordsError, cost_curves, load_prices, mean_cumulative, node_separation
from coaltree.records.cost import Costs
from tests.seeds import seed

N_DAYS = 60


def draw(rng, n, leaving=0.02):
    """Daily costs that rise, deaths after which they stop, and leaving at random that hides them."""
    daily = rng.gamma(0.2, 50.0, (n, N_DAYS)) * np.linspace(0.5, 2.0, N_DAYS)
    death = rng.geometric(0.01, n)
    leave = rng.geometric(leaving, n) if leaving else np.full(n, N_DAYS + 1)
    alive = np.arange(N_DAYS) < death[:, None]
    full = daily * alive
    seen = np.minimum(np.minimum(death, leave), N_DAYS)
    died = (death <= leave) & (death <= N_DAYS)
    shown = full * (np.arange(N_DAYS) < seen[:, None])
    return full, Costs(sparse.csr_matrix(shown), seen, died, {})


def test_without_leaving_it_is_the_plain_mean():
    full, costs = draw(np.random.default_rng(seed(1)), 50, leaving=0.0)
    np.testing.assert_allclose(mean_cumulative(costs)[0], full.mean(axis=0).cumsum())


def test_equal_to_a_loop():
    rng = np.random.default_rng(seed(2))
    _, costs = draw(rng, 40)
    daily, left = costs.daily.toarray(), (costs.seen < N_DAYS) & ~costs.died
    remaining, total, expected = 1.0, 0.0, []
    for day in range(N_DAYS):
        total += daily[:, day].sum() / remaining / 40
        expected.append(total)
        at_risk = [i for i in range(40) if costs.seen[i] > day]
        if at_risk:
            remaining *= 1 - sum(left[i] and costs.seen[i] == day + 1 for i in at_risk) / len(at_risk)
        if remaining == 0:
            break
    np.testing.assert_allclose(mean_cumulative(costs)[0, : len(expected)], expected)


def test_leaving_is_corrected():
    """The mean over many cohorts is that of the full costs, and without the correction it is far below."""
    rng = np.random.default_rng(seed(3))
    errors, naive = [], []
    for _ in range(60):
        full, costs = draw(rng, 200)
        errors.append(mean_cumulative(costs)[0, -1] - full.sum(axis=1).mean())
        naive.append(costs.total.mean() - full.sum(axis=1).mean())
    error = np.std(errors) / np.sqrt(len(errors))
    assert abs(np.mean(errors)) < 4 * error
    assert np.mean(naive) < -20 * np.std(naive) / np.sqrt(len(naive))


def test_curves_are_ordered_by_risk_and_bands_cover():
    rng = np.random.default_rng(seed(4))
    risk = rng.standard_normal(800)
    daily = rng.gamma(0.3, 10.0, (800, N_DAYS)) * np.exp(0.5 * risk)[:, None]
    costs = Costs(sparse.csr_matrix(daily), np.full(800, N_DAYS), np.zeros(800, dtype=bool), {})
    curves = cost_curves(costs, risk, n_resamples=200, random_state=seed(5))
    assert (np.diff(curves.mean[:, -1]) > 0).all()
    assert (curves.low <= curves.mean).all()
    assert (curves.mean <= curves.high).all()
    assert curves.n.tolist() == [200] * 4
    again = cost_curves(costs, risk, n_resamples=200, random_state=seed(5))
    np.testing.assert_array_equal(curves.high, again.high)
    # A band of 90 % is about 3.3 standard errors wide.
    quarter = np.sort(risk)[:200].max() >= risk
    error = daily[quarter].sum(axis=1).std() / np.sqrt(200)
    assert curves.high[0, -1] - curves.low[0, -1] == pytest.approx(3.29 * error, rel=0.25)
    with pytest.raises(RecordsError, match="too few"):
        cost_curves(costs.take(np.arange(5)), risk[:5])


@pytest.mark.parametrize("criterion", ["rank", "gap"])
def test_the_right_node_is_chosen(criterion):
    rng = np.random.default_rng(seed(6))
    nodes = rng.standard_normal((600, 5))
    nodes[:, 3] = 0.6 * nodes[:, 2] + 0.8 * nodes[:, 3]  # a neighbour of the true one
    _, costs = draw(rng, 600, leaving=0.01)
    costs = Costs(costs.daily.multiply(np.exp(nodes[:, 2])[:, None]).tocsr(), costs.seen, costs.died, {})
    found = node_separation(costs, nodes, criterion, random_state=0)
    assert found.best == 2
    assert found.chosen[2] > 0.95
    assert found.chosen.sum() == pytest.approx(1.0)
    assert found.rank_correlation[3] > 5 * np.abs(found.rank_correlation[[0, 1, 4]]).max() / 3


def test_a_clade_that_does_as_well_as_its_leaf_is_chosen():
    """Node 3 is nearly the truth, node 4 the same with a little noise, node 5 half noise, node 6 all noise."""
    rng = np.random.default_rng(seed(7))
    truth = rng.standard_normal(1500)
    noise = rng.standard_normal((1500, 7))
    share = np.array([1.0, 1.0, 1.0, 0.05, 0.08, 0.6, 1.0])
    nodes = np.sqrt(1 - share**2) * truth[:, None] + share * noise
    _, costs = draw(rng, 1500, leaving=0.0)
    costs = Costs(costs.daily.multiply(np.exp(truth)[:, None]).tocsr(), costs.seen, costs.died, {})
    sizes = np.array([1, 1, 1, 1, 2, 3, 4])
    found = node_separation(costs, nodes, sizes=sizes, random_state=0)
    ahead = int(np.argmax(found.rank_correlation))
    assert ahead in (3, 4)
    shortfall = found.rank_correlation[ahead] - found.rank_correlation
    assert found.best == (4 if shortfall[4] <= found.shortfall_error[4] else 3)
    assert shortfall[5] > 3 * found.shortfall_error[5]
    # Two columns that are the same differ by nothing: the larger clade, whatever the order.
    twice = nodes[:, [3, 3, 6]]
    assert node_separation(costs, twice, sizes=[1, 2, 3], random_state=0).best == 1
    assert node_separation(costs, twice, sizes=[2, 1, 3], random_state=0).best == 0
    assert node_separation(costs, twice, random_state=0).best == 0


def test_prices(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text("Code,price\n99213,70.5\nICD9PROC//3722,1200\n")
    assert load_prices(file) == {"HCPCS//99213": 70.5, "ICD9PROC//37.22": 1200.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hcpcs,price\n99213,70", "lacks the column.*code"),
        ("code,price\n99213,free", "row 2: the price 'free' is not a number"),
        ("code,price\n99213,-1", "row 2.*not negative"),
        ("code,price\n99213,1\nHCPCS//99213,2", "row 3.*two prices"),
        ("code,price\n,1", "row 2: there is no code"),
        ("code,price\n", "no rows"),
    ],
)
def test_mistakes_in_a_price_table(tmp_path, text, message):
    file = tmp_path / "prices.csv"
    file.write_text(text)
    with pytest.raises(RecordsError, match=message):
        load_prices(file)
