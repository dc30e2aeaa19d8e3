"""Builds the extension module `ticks`: `python setup.py build_ext --build-lib FOLDER`."""

from setuptools import Extension, setup

import slipring

setup(
    name="ticks",
    ext_modules=[
        Extension(
            "ticks",
            ["ticks.cpp"],
            include_dirs=[slipring.get_include()],
            extra_compile_args=["-std=c++17", "-Wall", "-Wextra"],
        )
    ],
)
