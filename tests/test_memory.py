"""Buffers for large arrays."""

import numpy as np
import pytest
import torch

from krylow._memory import arrays, empty

LINE, PAGE = 64, 1 << 21


@pytest.mark.parametrize("rows", [10, PAGE // 64 + 1])
def test_a_buffer_is_its_own_and_begins_at_a_line(rows):
    first, second = (empty(rows, 16, dtype=torch.float32) for _ in range(2))
    assert first.data_ptr() % LINE == 0
    assert first.is_contiguous()
    first.fill_(1.0)
    second.fill_(2.0)
    assert float(first.min()) == float(first.max()) == 1.0


@pytest.mark.parametrize("n", [5, PAGE // 4])
def test_arrays_do_not_overlap(n):
    pair = np.dtype([("a", "i4"), ("b", "f8")])
    found = arrays((n, np.int32), ((n, 3), np.float64), (0, np.int8), (n, pair))
    assert [part.shape for part in found] == [(n,), (n, 3), (0,), (n,)]
    assert all(part.ctypes.data % LINE == 0 for part in found if part.size)
    for value, part in enumerate(found):
        part.view(np.uint8)[...] = value
    assert all((part.view(np.uint8) == value).all() for value, part in enumerate(found))


def test_a_large_buffer_goes_back_to_the_system():
    try:
        with open("/proc/self/statm") as file:
            file.read()
    except OSError:
        pytest.skip("the system does not say how much is in use")

    def used():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = used()
    block = empty(32 * PAGE, dtype=torch.uint8).fill_(1)
    assert used() - before >= 31 * PAGE
    del block
    assert used() - before <= 4 * PAGE
