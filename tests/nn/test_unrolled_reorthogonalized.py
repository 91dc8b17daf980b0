import torch

import krylow as kl
from krylow.metrics import orthogonality_loss
from krylow.nn import RootProbe, UnrolledLanczos


def test_a_well_filtered_start_loses_orthogonality_unless_reorthogonalised(tmp_path):
    L = kl.laplacian(kl.data.sbm(4, 100, 4, dtype=torch.float64))
    z = torch.randn(4, 100, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probe = RootProbe(60, 0.7, 2.4)
    plain = UnrolledLanczos(10, 20, probe, init=0.0, literal=True).double()
    kept = UnrolledLanczos(10, 20, probe, init=0.0, reorthogonalize=True).double()
    assert orthogonality_loss(plain.krylov(L, z=z).V).max() > 1e-5
    assert orthogonality_loss(kept.krylov(L, z=z).V).max() < 1e-10
    kept.save(tmp_path / "net.safetensors")
    assert kl.load(tmp_path / "net.safetensors").reorthogonalize


def test_where_the_plain_recurrence_is_orthonormal_they_agree():
    L = kl.laplacian(kl.data.sbm(2, 60, 4, dtype=torch.float64))
    plain, kept = (UnrolledLanczos(3, 6, RootProbe(4), init=0.0, reorthogonalize=r).double() for r in (False, True))
    torch.testing.assert_close(plain.krylov(L).alpha, kept.krylov(L).alpha)
