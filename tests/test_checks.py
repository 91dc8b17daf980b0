import pytest
import torch

from krylow import InputError, _checks


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, r"k must be at least 1, got 0"),
        (-3, r"k must be at least 1, got -3"),
        (2.5, r"k must be an integer, got 2\.5"),
        (True, r"k must be an integer, got True"),
        ("three", r"k must be an integer, got 'three'"),
        ("3", r"k must be an integer, got '3'"),
        (None, r"k must be an integer, got None"),
        (float("nan"), r"k must be an integer, got nan"),
        (float("inf"), r"k must be an integer, got inf"),
        ([1], r"k must be an integer, got \[1\]"),
    ],
)
def test_bad_counts(value, message):
    with pytest.raises(InputError, match=message):
        _checks.count(value, "k")


def test_good_counts():
    for value in (3, 3.0, torch.tensor(3)):
        assert _checks.count(value, "k", 1, 3) == 3
        assert isinstance(_checks.count(value, "k"), int)
    with pytest.raises(InputError, match=r"k must be between 1 and 2 \(the nodes\), got 3"):
        _checks.count(3, "k", 1, 2, hint=" (the nodes)")


@pytest.mark.parametrize(
    ("k", "cutoff", "message"),
    [
        (None, None, r"either k .* or cutoff .*, got neither"),
        (2, 0.5, r"either k .* or cutoff .*, got k=2 and cutoff=0\.5"),
        (0, None, r"k must be between 1 and 5 .*got 0"),
        (6, None, r"k must be between 1 and 5 .*got 6"),
        (None, float("nan"), r"cutoff must be a number, got nan"),
        (None, "low", r"cutoff must be a number, got 'low'"),
    ],
)
def test_k_or_cutoff(k, cutoff, message):
    with pytest.raises(InputError, match=message):
        _checks.k_or_cutoff(k, cutoff, 5)


def test_good_k_or_cutoff():
    _checks.k_or_cutoff(5, None, 5)
    _checks.k_or_cutoff(None, 0.0, 5)
    _checks.k_or_cutoff(None, -1.0, 5)
    _checks.k_or_cutoff(None, float("inf"), 5)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "small", None])
def test_positive(value):
    with pytest.raises(InputError, match=r"tol must be a positive number, got"):
        _checks.positive(value, "tol")


def test_choice():
    assert _checks.choice("b", ("a", "b"), "kind") == "b"
    with pytest.raises(InputError, match="kind must be one of 'a', 'b', got 'c'"):
        _checks.choice("c", ("a", "b"), "kind")


def test_input_error_is_a_value_error():
    assert issubclass(InputError, ValueError)


def test_symmetry_is_relative_to_each_graph():
    big, small = 1e6 * torch.ones(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    small[0, 1] = 1e-8
    with pytest.raises(InputError, match="symmetric"):
        _checks.symmetric(torch.stack([big, small]), "W")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(4), r"one row per node, \(5, c\), got shape \(4,\)"),
        (torch.ones(4, 5), r"one row per node, \(5, c\), got shape \(4, 5\)"),
        (torch.tensor(1.0), r"one row per node, \(5, c\), got shape \(\)"),
        (torch.full((5,), 1e300, dtype=torch.float64), r"within the range of the graph's torch.float32"),
        (torch.ones(5) + 0j, r"must be real, got torch.complex64"),
        (torch.full((5,), float("nan")), r"must be finite, got 5 NaN"),
    ],
)
def test_signals(x, message):
    with pytest.raises(InputError, match=message):
        _checks.signal(x, torch.Size(()), 5, torch.float32)


def test_signals_of_batches():
    _checks.signal(torch.ones(5, 2), torch.Size((3,)), 5, torch.float32)
    _checks.signal(torch.ones(3, 5, 2), torch.Size((3,)), 5, torch.float32)
    _checks.signal(torch.ones(7, 5, 2), torch.Size(()), 5, torch.float32)
    assert _checks.signal(torch.ones(5, dtype=torch.int64), torch.Size(()), 5, torch.float32).dtype == torch.float32
    with pytest.raises(InputError, match=r"needs a signal \(\*batch, 5, c\)"):
        _checks.signal(torch.ones(5), torch.Size((3,)), 5, torch.float32)
    with pytest.raises(InputError, match=r"batch \(2,\) does not fit the operator's \(3,\)"):
        _checks.signal(torch.ones(2, 5, 1), torch.Size((3,)), 5, torch.float32)
