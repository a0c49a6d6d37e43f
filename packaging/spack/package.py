# SPDX-License-Identifier: BSD-3-Clause
# Recipe for Spack: packages/clblas-shim/package.py of a repository, in 1.0 and newer packages/clblas_shim/package.py.
# Seen to install and to pass `spack test run` with Spack 0.23.0 and next=openblas; newer ones have not run it.
from spack.package import *

try:
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
except ImportError:  # before Spack 1.0 it is in spack.package
    pass


class ClblasShim(AutotoolsPackage):
    """BLAS and LAPACK that run large calls on an OpenCL device where that is faster, all others by the library behind."""

    # No public page yet: `spack dev-build clblas-shim@0.2.0` in the sources.
    homepage = "https://example.org/clblas-shim"
    url = "https://example.org/clblas-shim-0.2.0.tar.xz"

    license("BSD-3-Clause")

    version("0.2.0")

    variant(
        "next",
        default="openblas",
        values=("openblas", "blis", "netlib"),
        multi=False,
        description="Library that computes what does not run on the device",
    )

    provides("blas", "lapack")
    conflicts("target=ppc64le:", msg="libblas and liblapack need x86-64 or aarch64")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("opencl-c-headers", type="build")
    depends_on("jansson@2.10:")
    depends_on("opencl-icd-loader", type="run")
    depends_on("openblas", when="next=openblas")
    depends_on("blis+blas+cblas libs=shared", when="next=blis")
    depends_on("netlib-lapack~external-blas+shared", when="next=blis")
    depends_on("netlib-lapack~external-blas+shared", when="next=netlib")

    def configure_args(self):
        # By full paths: libblas.so.3 and liblapack.so.3 are the names of the shim's own libraries.
        wanted = {
            "openblas": [("openblas", ["libopenblas"])],
            "blis": [("blis", ["libblis"]), ("netlib-lapack", ["liblapack"])],
            "netlib": [("netlib-lapack", ["libblas", "liblapack"])],
        }
        paths = []
        for package, names in wanted[self.spec.variants["next"].value]:
            paths += find_libraries(names, self.spec[package].prefix, shared=True, recursive=True)
        return ["--enable-provider", "--with-provider-next=" + ":".join(paths)]

    def check(self):
        """Nothing: the tests need an OpenCL device, and half an hour."""

    @property
    def libs(self):
        return find_libraries(["liblapack", "libblas"], join_path(self.prefix.lib, "clblas-shim"))

    def test_product(self):
        """a program with the virtual packages' libraries gets its product"""
        source = join_path(self.test_suite.current_test_data_dir, "product.c")
        with working_dir("."):
            which("cc", "gcc")("-o", "product", source, *self.libs.ld_flags.split(), "-Wl,-rpath," + self.libs.directories[0])
            assert "0 wrong" in which("./product")(output=str.split)
