"""One broker shared with native code: the example in C++ is built and run."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import ModuleType

import numpy
import pytest

import slipring
from slipring import Broker, Overflow

EXAMPLE = Path(__file__).parents[1] / "examples/native"
ONCE = slipring.DeliveryMode.AT_MOST_ONCE
TICK = numpy.dtype([("price", "<f8"), ("size", "<i8")])


@pytest.fixture(scope="module")
def ticks(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("native")
    build = ["setup.py", "-q", "build_ext", "--build-lib", str(folder), "--build-temp", str(folder)]
    built = subprocess.run(
        [sys.executable, *build], cwd=EXAMPLE, capture_output=True, text=True, timeout=100
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning" not in built.stderr, built.stderr
    (path,) = folder.glob("ticks*.so")
    spec = importlib.util.spec_from_file_location("ticks", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_reads_what_native_code_wrote_where_it_wrote_it(
    broker: Broker, ticks: ModuleType
) -> None:
    subscription = broker.subscribe("ticks/*")
    other = broker.subscribe("ticks/gold")
    ticks.publish(broker.capsule(), "ticks/gold", 3, 100)
    frames = subscription.get_many(10)
    assert len(frames) == 3
    arrays = [numpy.frombuffer(frame.payload, dtype=TICK) for frame in frames]
    prices = numpy.concatenate([array["price"] for array in arrays])
    assert numpy.array_equal(prices, 100 + 0.25 * numpy.arange(300))
    assert numpy.array_equal(arrays[2]["size"], numpy.arange(100))
    assert not any(array.flags.owndata or array.flags.writeable for array in arrays)
    same = numpy.frombuffer(other.get().payload, dtype=TICK)
    assert same.ctypes.data == arrays[0].ctypes.data


def test_native_code_waits_without_the_interpreters_lock(
    broker: Broker, ticks: ModuleType
) -> None:
    subscription = broker.subscribe("ticks", delivery=ONCE, capacity=2, overflow=Overflow.BLOCK)
    publisher = threading.Thread(target=ticks.publish, args=(broker.capsule(), "ticks", 1000, 1))
    publisher.start()
    assert [subscription.get().offset for _ in range(1000)] == list(range(1000))
    publisher.join()


def test_native_code_is_told_what_goes_wrong(broker: Broker, ticks: ModuleType) -> None:
    capsule = broker.capsule()
    with pytest.raises(RuntimeError, match="byte 2"):
        ticks.publish(capsule, "a/*", 1, 1)
    with pytest.raises(RuntimeError, match="over the limit"):
        ticks.publish(capsule, "a", 1, 1 << 20)
    broker.close()
    with pytest.raises(RuntimeError, match="closed"):
        ticks.publish(capsule, "a", 1, 1)
    with pytest.raises(ValueError):
        ticks.publish(object(), "a", 1, 1)


@pytest.mark.parametrize(
    ("abi", "functions", "told"),
    [
        (2, 1000, "built for an older slipring: .* has ABI 2 and 1000"),
        (0, 1000, "built for a newer slipring: .* has ABI 0 and 1000"),
        (1, 10, "built for a newer slipring: .* has ABI 1 and 10"),
    ],
)
def test_native_code_of_another_version_is_refused(
    ticks: ModuleType, abi: int, functions: int, told: str
) -> None:
    # The first members of what a capsule points to.
    contents = (ctypes.c_uint32 * 2)(abi, functions)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(contents), b"slipring.broker", None)
    with pytest.raises(ImportError, match=told):
        ticks.publish(capsule, "a", 1, 1)


def test_a_capsule_keeps_its_broker_open(ticks: ModuleType) -> None:
    broker = slipring.open()
    subscription = broker.subscribe("a")
    capsule = broker.capsule()
    del broker
    gc.collect()
    ticks.publish(capsule, "a", 1, 1)
    assert len(subscription.get_many(5)) == 1
    topic_of_another = slipring.open().capsule()
    ticks.publish(topic_of_another, "a", 1, 1)
    assert subscription.get_nowait() is None


def test_a_broker_is_gone_with_the_last_of_its_capsules() -> None:
    broker = slipring.open()
    alive = weakref.ref(broker)
    capsules = [broker.capsule() for _ in range(3)]
    del broker
    while len(capsules) > 1:
        capsules.pop()
        assert alive() is not None
    capsules.clear()
    assert alive() is None


def test_the_headers_are_of_the_version_that_is_installed() -> None:
    header = (Path(slipring.get_include()) / "slipring.h").read_text()
    assert f'#define SLIPRING_VERSION_STRING "{slipring.__version__}"' in header
    assert (Path(slipring.get_include()) / "slipring_python.h").is_file()
