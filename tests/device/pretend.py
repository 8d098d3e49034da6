"""A pretended accelerator on a CPU build of torch: the numbers are real, only what a tensor says of its place is not.

``install("mps")`` or ``install("cuda")`` changes torch for the rest of the process, so it belongs in a process of its own.
From then on:

* ``Tensor.device`` is the pretended device for whatever was moved or made there, so that code takes that device's way;
* every operator is seen as torch dispatches it: operands on two devices are a problem, as they would be there; so are
  float64 and operators without a kernel on MPS, and numpy's view of a device's tensor on both;
* launches, views, and what makes the host wait for the device (reading a number, copies that are not from pinned memory,
  operators whose result has a size of its own) are counted with the place in this repository that asked for them;
* the bytes of the device's living storages are counted; past ``total`` an allocation fails in that device's words.

What it cannot show: time, the device's own numerics, and errors inside of its kernels.
"""

from __future__ import annotations

import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from tests.device.operators import FREE, INDEXING, KERNELS, WAITS, mps_lacks
from tests.device.tally import Tally

_ROOT = f"{Path(__file__).parents[2]}/"
_OWN = str(Path(__file__))
_CPU = torch.device("cpu")
_GRAIN = 512  # bytes: what CUDA's and MPS's allocators round a block up to

_FACTORIES = """zeros ones empty full arange tensor as_tensor rand randn randint randperm eye linspace scalar_tensor
    zeros_like ones_like empty_like full_like"""


class _Device:
    """The pretended device; storages are known by their address while they live."""

    def __init__(self) -> None:
        self.kind = ""
        self.total = 0
        self.tally = Tally()
        self.storages: dict[int, int] = {}
        self.pinned: set[int] = set()
        self.unfinished: set[int] = set()
        """What copies to MPS may still read: its storages have to live until the host has waited."""
        self.missing: set[str] = set()
        """Operators without an MPS kernel by torch's own table; empty on CUDA."""

    def holds(self, t: torch.Tensor) -> bool:
        return _key(t) in self.storages

    def place(self, t: torch.Tensor, here: bool) -> None:
        """Say where a tensor's storage is; one that comes to the device counts until it dies."""
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            storage = t.untyped_storage()
            key = storage._cdata
            if not here:
                self.tally.live_bytes -= self.storages.pop(key, 0)
                return
            if key in self.storages:
                return
            size = -(-storage.nbytes() // _GRAIN) * _GRAIN
            if self.tally.live_bytes + size > self.total:
                self._out_of_memory(size)
            self.storages[key] = size
            self.tally.live_bytes += size
            self.tally.peak_bytes = max(self.tally.peak_bytes, self.tally.live_bytes)
            weakref.finalize(storage, self._died, key)

    def _died(self, key: int) -> None:
        self.tally.live_bytes -= self.storages.pop(key, 0)

    def _out_of_memory(self, size: int) -> None:
        if self.kind == "cuda":
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes (pretended).")
        raise RuntimeError(f"MPS backend out of memory (pretended: tried to allocate {size} bytes)")

    def problem(self, text: str) -> None:
        self.tally.problems[f"{text} at {_asker()}"] += 1

    def only_host(self) -> None:
        """A thread of ``prefetch.py`` draws batches, which are the host's."""
        if threading.current_thread().name.startswith("batch"):
            self.problem("a thread that draws batches uses the device")

    def waited(self, why: str) -> None:
        self.only_host()
        self.tally.waits[f"{why} at {_asker()}"] += 1
        self.unfinished.clear()

    def reads_later(self, x: torch.Tensor) -> None:
        """A copy to MPS that the host does not wait for."""
        storage = x.untyped_storage()
        self.unfinished.add(storage._cdata)
        weakref.finalize(storage, self._released, storage._cdata)

    def _released(self, key: int) -> None:
        if key in self.unfinished:
            self.unfinished.discard(key)
            self.problem("what a copy to MPS still reads was released")

    def launched(self, count: int) -> None:
        self.only_host()
        self.tally.launches += count
        self.tally.places[_asker()] += count

    def float64(self, t: torch.Tensor, what: str) -> None:
        if self.kind == "mps" and t.dtype == torch.float64:
            self.problem(f"float64 on MPS ({what})")


DEVICE = _Device()


def _key(t: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        try:
            return int(t.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # a sparse tensor has none
            return id(t)


def _asker() -> str:
    """The innermost line of this repository."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and name != _OWN and "/.venv/" not in name:
            return f"{name[len(_ROOT) :]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "torch"


def _size(t: torch.Tensor) -> int:
    return t.numel() * t.element_size()


_is_view: dict[Any, bool] = {}


def _renames(operator: Any) -> bool:
    """Whether an operator's result is a view of an operand."""
    if operator not in _is_view:
        schema = operator._schema
        aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        _is_view[operator] = aliases and not writes
    return _is_view[operator]


class Dispatch(TorchDispatchMode):
    """Sees every operator; active while the pretended device is in use (``with install(...):``)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check the operands' places, run the operator on the CPU, and count it where it would have run."""
        name, device = func.name(), DEVICE
        tensors = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, torch.Tensor)]
        here = [t.untyped_storage()._cdata in device.storages for t in tensors]
        shaped = {h for h, t in zip(here, tensors, strict=True) if t.dim()}
        if shaped == {False}:
            # A 0-d tensor beside it that C++ made where a storage of the device had been.
            here = [False] * len(here)
        on_device = any(here)
        if on_device and not all(here) and name not in ("aten::copy_", "aten::_to_copy"):
            self._mixed(name, tensors, here)
        out = func(*args, **(kwargs or {}))
        if name == "aten::copy_" and len(set(here)) > 1:
            device.waited("copy_ between devices")
            self._count_bytes(tensors[1], to_device=here[0])
        elif on_device:
            self._count(func, name, tensors, [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)])
        return out

    def _mixed(self, name: str, tensors: list[torch.Tensor], here: list[bool]) -> None:
        wrong = [t for t, h in zip(tensors, here, strict=True) if not h and t.dim()]
        if name == "aten::cat":  # C++ makes gradients without rows where no operand tells it the pretended place
            wrong = [t for t in wrong if t.numel()]
        if name in INDEXING and here[0]:
            if wrong:  # allowed: the index is copied to the device, which waits
                DEVICE.waited("index on the host")
                self._count_bytes(wrong[0], to_device=True)
        elif wrong or name.startswith(("aten::_foreach", "aten::_fused_")):
            shapes = [("device" if h else "cpu", tuple(t.shape)) for h, t in zip(here, tensors, strict=True)][:4]
            DEVICE.problem(f"{name} on two devices {shapes}")

    @staticmethod
    def _count_bytes(t: torch.Tensor, *, to_device: bool) -> None:
        if to_device:
            DEVICE.tally.to_device_bytes += _size(t)
        else:
            DEVICE.tally.to_host_bytes += _size(t)

    @staticmethod
    def _count(func: Any, name: str, tensors: list[torch.Tensor], outs: list[torch.Tensor]) -> None:
        device, tally = DEVICE, DEVICE.tally
        for t in outs:
            device.place(t, here=True)
            device.float64(t, name)
        tally.operators[name] += 1
        if name in device.missing:
            device.problem(f"{name} has no MPS kernel")
        by_mask = name in INDEXING and any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:3])
        if name in WAITS or by_mask:
            device.waited(f"{name}, by a mask" if by_mask else name)
        if _renames(func) or name in FREE:
            tally.views += 1
        else:
            device.launched(KERNELS.get(name, 1) + 4 * by_mask)


# ---------------------------------------------------------------- torch's functions that know about devices

_real = {name: getattr(torch.Tensor, name) for name in ("to", "numpy", "tolist", "data_ptr", "double", "clone")}
_real_array, _real_sdpa = torch.Tensor.__array__, torch.nn.functional.scaled_dot_product_attention


def _move(x: torch.Tensor, to_device: bool, non_blocking: bool) -> torch.Tensor:
    if DEVICE.holds(x) == to_device:
        return x
    if to_device:
        DEVICE.float64(x, "moved there")
    y = _real["clone"](x)
    DEVICE.place(y, here=to_device)
    if to_device:
        DEVICE.tally.to_device_bytes += _size(x)
        DEVICE.launched(1)
        if non_blocking and DEVICE.kind == "mps":
            DEVICE.reads_later(x)
        elif not (non_blocking and _key(x) in DEVICE.pinned):
            DEVICE.waited("copy to the device")
    else:
        DEVICE.tally.to_host_bytes += _size(x)
        DEVICE.waited("copy to the host")
    return y


def _to(self: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
    device, dtype = options.get("device"), options.get("dtype")
    non_blocking = bool(options.get("non_blocking", False))
    for given in rest:
        if isinstance(given, torch.dtype):
            dtype = given
        elif isinstance(given, str | torch.device):
            device = given
        elif isinstance(given, torch.Tensor):
            device, dtype = given.device, given.dtype
        elif isinstance(given, bool):
            non_blocking = non_blocking or given
    x = self
    if dtype is not None and x.dtype != dtype:
        x = _real["to"](x, dtype)
    elif options.get("copy"):
        x = x.clone()
    return x if device is None else _move(x, torch.device(device).type != "cpu", non_blocking)


def _host_only(name: str, real: Any) -> Any:
    """``numpy()`` and the like: an error on a device."""

    def call(self: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if DEVICE.holds(self):
            DEVICE.problem(f"{name} of a tensor on the device")
        return real(self, *rest, **options)

    return call


def _tolist(self: torch.Tensor) -> Any:
    if DEVICE.holds(self):
        DEVICE.waited("tolist")
        DEVICE.tally.to_host_bytes += _size(self)
    return _real["tolist"](self)


def _pin(self: torch.Tensor, *_: Any) -> torch.Tensor:
    if DEVICE.kind == "mps":
        DEVICE.problem("pin_memory, whose result is on MPS in some versions of torch,")
    out = _real["clone"](self)
    key = _key(out)
    DEVICE.pinned.add(key)
    weakref.finalize(out.untyped_storage(), DEVICE.pinned.discard, key)
    return out


def _factory(name: str, real: Any) -> Any:
    def make(*rest: Any, **options: Any) -> Any:
        wanted = options.get("device")
        if wanted is not None:
            options["device"] = "cpu"
        out = real(*rest, **options)
        if wanted is None and name.endswith("_like"):
            return out
        here = wanted is not None and torch.device(wanted).type != "cpu"
        DEVICE.place(out, here=here)
        if here:
            DEVICE.float64(out, name)
            if "empty" not in name:
                DEVICE.launched(1)
            if name in ("tensor", "as_tensor"):
                DEVICE.tally.to_device_bytes += _size(out)
                DEVICE.waited("torch.tensor from the host's numbers")
        return out

    return make


def _attention(q: Any, k: Any, v: Any, mask: Any = None, p: float = 0.0, causal: bool = False, **rest: Any) -> Any:
    """torch's own kernel makes its mask inside of C++, where the pretended place is not known: written out."""
    if not DEVICE.holds(q):
        return _real_sdpa(q, k, v, mask, p, causal, **rest)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.dropout(torch.softmax(scores, -1), p, p > 0.0) @ v


def install(kind: str, *, total: int = 80 << 30) -> Dispatch:
    """Pretend a device of ``kind`` ("cuda", "mps") with ``total`` bytes for the rest of this process."""
    DEVICE.kind, DEVICE.total = kind, total
    DEVICE.missing = mps_lacks() if kind == "mps" else set()
    tensor: Any = torch.Tensor
    device = torch.device(kind, 0)
    tensor.device = property(lambda self: device if DEVICE.holds(self) else _CPU)
    tensor.is_cuda = property(lambda self: kind == "cuda" and DEVICE.holds(self))
    tensor.is_mps = property(lambda self: kind == "mps" and DEVICE.holds(self))
    tensor.to, tensor.tolist, tensor.pin_memory = _to, _tolist, _pin
    tensor.is_pinned = lambda self, *_: _key(self) in DEVICE.pinned
    tensor.cpu = lambda self, *_, **__: _move(self, False, False)
    tensor.cuda = lambda self, *_, **__: _move(self, True, False)
    tensor.numpy, tensor.__array__ = _host_only("numpy()", _real["numpy"]), _host_only("an array", _real_array)
    for name in _FACTORIES.split():
        setattr(torch, name, _factory(name, getattr(torch, name)))
    _optimizers(device)
    functional: Any = torch.nn.functional
    functional.scaled_dot_product_attention = _attention
    _library(kind)
    _autocast()
    return Dispatch()


def _library(kind: str) -> None:
    """``torch.cuda`` or ``torch.mps`` as on a machine that has the device."""
    library: Any = torch.cuda if kind == "cuda" else torch.mps
    library.manual_seed = lambda seed: None
    library.empty_cache = lambda: None
    library.synchronize = lambda *_: DEVICE.waited("synchronize")
    if kind == "cuda":
        library.Event = _Event
        library.is_available = lambda: True
        library.is_bf16_supported = lambda *_, **__: True
        library.device_count = lambda: 1
        library.set_device = lambda device: None
        library.mem_get_info = lambda *_: (DEVICE.total - DEVICE.tally.live_bytes, DEVICE.total)
        library.memory_allocated = lambda *_: DEVICE.tally.live_bytes
        library.max_memory_allocated = lambda *_: DEVICE.tally.peak_bytes
        library.reset_peak_memory_stats = lambda *_: None
    else:
        backend: Any = torch.backends.mps
        backend.is_available = backend.is_built = lambda: True
        library.current_allocated_memory = lambda: DEVICE.tally.live_bytes
        library.driver_allocated_memory = lambda: DEVICE.tally.live_bytes
        library.recommended_max_memory = lambda: DEVICE.total
        library.set_per_process_memory_fraction = lambda fraction: None


def _optimizers(device: torch.device) -> None:
    """Optimizers sort their tensors by device in C++, which knows the CPU alone."""
    optimizer: Any = torch.optim.Optimizer
    sort = optimizer._group_tensors_by_device_and_dtype

    def sorted_by_place(lists: Any, with_indices: bool = False) -> Any:
        result = sort(lists, with_indices)
        return {(device if DEVICE.holds(v[0][0][0]) else k[0], k[1]): v for k, v in result.items()}

    optimizer._group_tensors_by_device_and_dtype = staticmethod(sorted_by_place)


class _Event:
    """Everything has been done when it is recorded."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...


def _autocast() -> None:
    """Autocast of the pretended device is the CPU's."""
    region: Any = torch.amp.autocast_mode.autocast
    begin = region.__init__
    region.__init__ = lambda self, device_type, *rest, **options: begin(self, "cpu", *rest, **options)
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    library: Any = torch
    library.is_autocast_enabled = lambda device_type=None: enabled("cpu")
    library.get_autocast_dtype = lambda device_type=None: dtype("cpu")
