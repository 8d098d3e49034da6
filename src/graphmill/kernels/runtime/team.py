"""Runs ranges of a compiled kernel on torch's own threads. Needs numba.

torch's threads belong to the OpenMP library that it ships. Passing a range to a thread of another pool takes two wake-ups
through the interpreter, 50 to 100 µs per call. Meanwhile torch's own threads fall asleep, and have to be woken again. Here
compiled code itself starts a parallel region of torch's team (``GOMP_parallel``, the entry point that GCC uses for
``#pragma omp parallel``, in libgomp's ABI since GCC 4.9). If torch ships another OpenMP library, a thread pool is used.

A kernel is a compiled function of its arguments and a range, ``kernel(*arguments, first, last)``, and must not raise. A
kernel with many arguments takes them as one named tuple. Python calls the kernel's driver (:func:`driver_of`), which is
compiled, too, and starts the team.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.threads import SMALL

Team = tuple[int, int, int, int]
"""Addresses of ``GOMP_parallel``, ``omp_get_thread_num``, ``omp_get_num_threads``; number of threads."""
_ALONE: Team = (0, 0, 0, 1)
_ENTRIES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def over_ranges(kernel: Any, arguments: tuple[Any, ...], count: int, size: int) -> None:
    """Call a kernel for contiguous ranges that cover ``0:count``, one per thread.

    ``size`` is the work in elements. The calling thread does little work alone.
    """
    driver = driver_of(kernel)
    threads = min(torch.get_num_threads(), count) if size >= SMALL else 1
    if threads <= 1:
        driver(arguments, 0, count, _ALONE)
    elif entries := torch_team():
        driver(arguments, 0, count, (*entries, threads))
    else:
        _by_pool(driver, arguments, count, threads)


@cache
def driver_of(kernel: Any) -> Any:
    """The function ``driver(arguments, first, last, team)`` of a kernel.

    numba caches code only of functions in a file, by name and line. So the driver's source is compiled with the file
    name and line of its kernel.
    """
    function = kernel.py_func
    name = f"{function.__name__}_ranges"
    source = f"def {name}(arguments, first, last, team):\n    in_ranges(kernel, arguments, first, last, team)\n"
    lines = "\n" * (function.__code__.co_firstlineno - 1)
    scope = {"in_ranges": in_ranges, "kernel": kernel, "__name__": function.__module__}
    exec(compile(lines + source, function.__code__.co_filename, "exec"), scope)
    return jit(scope[name], nogil=True, error_model="numpy")


@cache
def torch_team() -> tuple[int, int, int] | None:
    """The entry points of the OpenMP library that torch has loaded, if it is GCC's."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            # Only a library that is already loaded: a second copy would have its own threads.
            library = ctypes.CDLL(str(path), os.RTLD_NOLOAD | os.RTLD_NOW)
            addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _ENTRIES]
        except (OSError, AttributeError):
            continue
        return addresses[0], addresses[1], addresses[2]
    return None


def _by_pool(driver: Callable[..., None], arguments: tuple[Any, ...], count: int, threads: int) -> None:
    bounds = [count * i // threads for i in range(threads + 1)]
    others = [
        _executor(os.getpid(), threads - 1).submit(driver, arguments, a, b, _ALONE) for a, b in pairwise(bounds[1:])
    ]
    driver(arguments, bounds[0], bounds[1], _ALONE)
    for other in others:
        other.result()


@cache
def _executor(process: int, threads: int) -> ThreadPoolExecutor:
    """The thread pool, one per process and thread count. After a fork, the parent's threads do not exist in the child."""
    return ThreadPoolExecutor(threads, "graphmill-kernels")


@intrinsic
def in_ranges(typing: Any, kernel: Any, arguments: Any, first: Any, last: Any, team: Any) -> Any:
    """Call ``kernel(*arguments, first, last)``, on a team of threads if ``team`` names one. For compiled code only."""
    whole = types.int64
    at_once = isinstance(arguments, types.BaseNamedTuple)  # passed as it is
    call = typing.resolve_function_type(kernel, (*([arguments] if at_once else arguments.types), whole, whole), {})

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        compiled = kernel.dispatcher.get_compile_result(call)
        context.active_code_library.add_linking_library(compiled.library)
        function = context.declare_function(builder.module, compiled.fndesc)

        def run(where: Any, given: list[Any]) -> None:
            # A kernel does not raise, so its status is ignored.
            context.call_conv.call_function(
                where, function, compiled.fndesc.restype, compiled.fndesc.argtypes, tuple(given)
            )

        passed = [values[1]] if at_once else cgutils.unpack_tuple(builder, values[1], len(arguments.types))
        given = [*passed, values[2], values[3]]
        entries = cgutils.unpack_tuple(builder, values[4], len(team.types))
        several = builder.icmp_signed(">", entries[3], ir.Constant(ir.IntType(64), 1))
        with builder.if_else(several) as (together, alone):
            with alone:
                run(builder, given)
            with together:
                _enter(builder, given, entries, run)
        return context.get_dummy_value()

    return types.void(kernel, arguments, whole, whole, team), generate


def _enter(builder: Any, given: list[Any], entries: list[Any], run: Callable[[Any, list[Any]], None]) -> None:
    """Generate code that stores ``given`` and the entry points in shared memory, and starts the team on :func:`_part`."""
    pointer, whole, half = ir.IntType(8).as_pointer(), ir.IntType(64), ir.IntType(32)
    shared = [*given, *entries[1:3]]
    layout = ir.LiteralStructType([value.type for value in shared])
    box = cgutils.alloca_once(builder, layout)
    for place, value in enumerate(shared):
        builder.store(value, builder.gep(box, [half(0), half(place)], inbounds=True))
    kind = ir.FunctionType(ir.VoidType(), [pointer])
    part = ir.Function(builder.module, kind, builder.module.get_unique_name("part_of_team"))
    part.linkage = "internal"
    _part(ir.IRBuilder(part.append_basic_block("entry")), part.args[0], layout, run)
    start = ir.FunctionType(ir.VoidType(), [kind.as_pointer(), pointer, half, half]).as_pointer()
    threads = builder.trunc(entries[3], half)
    builder.call(builder.inttoptr(entries[0], start), [part, builder.bitcast(box, pointer), threads, half(0)])
    assert entries[0].type == whole


def _part(builder: Any, box: Any, layout: Any, run: Callable[[Any, list[Any]], None]) -> None:
    """Generate the code of one thread, which runs its part of the range."""
    half, whole = ir.IntType(32), ir.IntType(64)
    box = builder.bitcast(box, layout.as_pointer())
    places = range(len(layout.elements))
    *arguments, first, last, number, count = (
        builder.load(builder.gep(box, [half(0), half(place)], inbounds=True)) for place in places
    )
    ask = ir.FunctionType(half, []).as_pointer()
    # There may be fewer threads than requested.
    mine, threads = (builder.sext(builder.call(builder.inttoptr(f, ask), []), whole) for f in (number, count))
    size = builder.sub(last, first)
    bounds = [
        builder.add(first, builder.sdiv(builder.mul(size, at), threads)) for at in (mine, builder.add(mine, whole(1)))
    ]
    run(builder, [*arguments, *bounds])
    builder.ret_void()
