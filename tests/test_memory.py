"""Room for large arrays."""

import pytest
import torch

from krylow import _memory
from krylow._memory import LARGE, empty


@pytest.mark.parametrize("rows", [10, LARGE // 64 + 1])
def test_room_is_its_own_and_begins_at_a_line(rows):
    first, second = (empty(rows, 16, dtype=torch.float32) for _ in range(2))
    assert first.data_ptr() % _memory.LINE == 0
    assert first.is_contiguous()
    first.fill_(1.0)
    second.fill_(2.0)
    assert float(first.min()) == float(first.max()) == 1.0


def test_large_room_goes_back_to_the_system():
    try:
        with open("/proc/self/statm") as file:
            file.read()
    except OSError:
        pytest.skip("the system does not say how much is in use")

    def used():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = used()
    block = empty(8 * LARGE, dtype=torch.uint8).fill_(1)
    assert used() - before >= 7 * LARGE
    del block
    assert used() - before <= 2 * LARGE
