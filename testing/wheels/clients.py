# SPDX-License-Identifier: BSD-3-Clause
"""What programs with wheels from PyPI do, each by its name: clients.py NAME.

What is printed is the same whoever computes it: residuals are compared with a bound, sums are rounded."""
import sys

import numpy as np

rng = np.random.default_rng(7)


def numpy():
    a, b = rng.standard_normal((90, 70)), rng.standard_normal((70, 80))
    print("product", np.allclose(a @ b, np.einsum("ik,kj->ij", a, b)))
    a = rng.standard_normal((60, 60))
    print("solution", np.abs(a @ np.linalg.solve(a, a[:, :5]) - a[:, :5]).max() < 1e-9)
    print("large product", np.allclose((lambda x: x @ x.T)(np.ones((700, 700))), 700))


def kmeans():
    from sklearn.cluster import KMeans

    x = rng.standard_normal((300, 6)) + 9 * (np.arange(300) % 2)[:, None]
    labels = KMeans(2, n_init=1, random_state=0).fit(x).labels_
    print("clusters", sorted(np.bincount(labels)), np.all(labels[::2] == labels[0]))


def interpolative():
    import scipy.linalg.interpolative as interpolative

    a = rng.standard_normal((60, 8)) @ rng.standard_normal((8, 50))
    rank, index, projection = interpolative.interp_decomp(a, 1e-8)
    whole = interpolative.reconstruct_matrix_from_id(a[:, index[:rank]], index, projection)
    print("rank", rank, np.abs(whole - a).max() < 1e-6)


def numba():
    import numba

    @numba.njit
    def solve(a, b):
        return np.linalg.solve(a, b)

    a, b = rng.standard_normal((50, 50)), rng.standard_normal((50, 3))
    print("solution", np.abs(a @ solve(a, b) - b).max() < 1e-8)


def sarimax():
    import statsmodels.api as sm

    y = np.cumsum(rng.standard_normal(80))
    print("likelihood", round(sm.tsa.SARIMAX(y, order=(1, 1, 1)).fit(disp=0, maxiter=10).llf, 2))


def jax():
    import jax.numpy as jnp
    import jax.scipy.linalg as linalg

    a = jnp.asarray(rng.standard_normal((60, 60)), dtype=jnp.float32)
    p, l, u = linalg.lu(a)
    print("factors", bool(jnp.abs(p @ l @ u - a).max() < 1e-3))


def versions():
    from importlib.metadata import version

    print("Python", sys.version.split()[0], *(f"{p} {version(p)}" for p in sys.argv[2:]))


globals()[sys.argv[1]]()
