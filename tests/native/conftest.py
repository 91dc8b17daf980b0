import pytest

from krylow import _native


@pytest.fixture(params=[4, 3, 2])
def level(request):
    """Every level of the instruction set that the processor has; one on processors without levels."""
    _native.limit_level(request.param)
    if _native.level() != request.param and request.param != 4:
        _native.limit_level(4)
        pytest.skip("no such level")
    yield request.param
    _native.limit_level(4)
