import numpy as np
import pytest

from krylow._checks import InputError
from krylow.io.files import Limit
from krylow.io.signals import Table, format_table, parse_table

LIMIT = Limit("a file", 1 << 30)


@pytest.mark.parametrize("mark", [",", "\t", " ", "; "])
def test_numbers_alone(mark):
    table = parse_table(f"1{mark}2\n3{mark}-4.5e-3\n5{mark}6\n", LIMIT)
    assert np.array_equal(table.values, [[1, 2], [3, -0.0045], [5, 6]])
    assert (table.columns, table.nodes) == (None, None)


@pytest.mark.parametrize(
    ("text", "columns", "nodes"),
    [
        ("x,y\n1,2\n3,4\n", ["x", "y"], None),
        ("node,x,y\n7,1,2\n9,3,4\n", ["x", "y"], ["7", "9"]),
        ("ID,x,y\na,1,2\nb,3,4\n", ["x", "y"], ["a", "b"]),
        (",x,y\n0,1,2\n1,3,4\n", ["x", "y"], ["0", "1"]),  # an index as pandas writes it
        ("a,1,2\nb,3,4\n", None, ["a", "b"]),
        ('"a, b",1,2\nc,3,4\n', None, ["a, b", "c"]),
    ],
)
def test_names(text, columns, nodes):
    table = parse_table(text, LIMIT)
    assert np.array_equal(table.values, [[1, 2], [3, 4]])
    assert (table.columns, table.nodes) == (columns, nodes)
    assert parse_table(format_table(table, "\t"), LIMIT).nodes == nodes
    assert (
        format_table(table, ",").lower().split()
        == text.replace("1,2", "1.0,2.0").replace("3,4", "3.0,4.0").lower().split()
    )


def test_one_column_keeps_two_dimensions():
    assert parse_table("1\n2\n3", LIMIT).values.shape == (3, 1)
    assert parse_table("x\n1\n2\n3\n", LIMIT).columns == ["x"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_come_back_to_the_bit(dtype):
    values = np.random.default_rng(0).standard_normal((50, 3)).astype(dtype) ** 5
    again = parse_table(format_table(Table(values), ","), LIMIT).values
    assert np.array_equal(again.astype(dtype), values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("x,y\n", "got one line"),
        ('"\nnan\t2\n', "got a first line"),
        ("1,2\n3\n", "got '3' on line 2"),
        ("1,2\n3,x\n", "got '3,x' on line 2"),
        ("x,y\n1,2\n3,\n", "got '3,' on line 3"),
        ("x,y,z\n1,2\n", "3 names for 2 columns"),
    ],
)
def test_what_is_no_table(text, message):
    with pytest.raises(InputError, match=f"a file must.*{message}"):
        parse_table(text, LIMIT)


def test_a_table_has_two_dimensions():
    with pytest.raises(InputError, match=r"got shape \(2, 3, 4\)"):
        format_table(Table(np.zeros((2, 3, 4))), ",")
