"""torch under a virtual GPU: "cuda" tensors are tensors in host memory that are known to be on the device.

A mode of torch's sees every call. It asks torch for host memory where the program asks for "cuda", notes the
storage, and answers `tensor.device` and `tensor.is_cuda` for it. A result is on the device if an operand is.
torch computes its own operators on the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map

from lanewise.virtual_gpu.frameworks.patches import FrameworkState, Patches
from lanewise.virtual_gpu.frameworks.torch_autocast import (
    in_float32,
    install_torch_autocast,
    rounds_to_its_own_type,
)
from lanewise.virtual_gpu.frameworks.torch_checks import TorchChecks
from lanewise.virtual_gpu.frameworks.torch_cuda import Recording, install_torch_cuda, tensors_among
from lanewise.virtual_gpu.frameworks.torch_extension import (
    DLPACK_CUDA,
    DLPACK_HOST,
    align_tensors,
    install_torch_dlpack,
    install_torch_extension,
    scaled_mm,
    set_capsule_device,
)

if TYPE_CHECKING:
    from lanewise.numpy_types import AnyArray
    from lanewise.virtual_gpu.driver.driver import Driver

_weak_reference: Any = StorageWeakRef
_CUDA = torch.device("cuda", 0)
_HOST = torch.device("cpu")
#: How many storages are noted before those that are gone are looked for.
_FIRST_SWEEP = 256


#: Functions that torch's CPU kernels compute with sums in half precision, and its CUDA kernels with sums in
#: float32: half-precision operands are widened for them, and the result is rounded once. Seen with torch
#: 2.13: the gradient of a bias by `layer_norm` over 1,151 rows of float16 is 0.07 off on a CPU.
_WIDENED = {
    torch.nn.functional.layer_norm,
    torch.nn.functional.group_norm,
    torch.nn.functional.rms_norm,
    torch.nn.functional.batch_norm,
    torch.nn.functional.instance_norm,
}
_HALF = (torch.float16, torch.bfloat16)
#: Products that take the type of their result.
_PRODUCTS = {torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.matmul}
#: Operators that refuse operands on different devices, as on a GPU. Others, such as copies and indexing, take
#: them or are not looked at.
_SAME_DEVICE = {
    "add", "sub", "mul", "div", "true_divide", "pow", "maximum", "minimum", "where", "cat", "stack", "dot",
    "matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "einsum", "linear", "eq", "ne", "lt", "le", "gt", "ge",
    "__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__", "__mul__", "__rmul__", "__imul__",
    "__truediv__", "__rtruediv__", "__matmul__", "__rmatmul__", "add_", "sub_", "mul_", "div_", "addmm_",
}  # fmt: skip


class DeviceStorages:
    """The storages that are on the device, and those whose addresses kernels may use."""

    def __init__(self, driver: Driver) -> None:
        self._memory = driver.memory
        self._lock = threading.Lock()
        #: By their numbers: a weak reference to each storage, and its bytes.
        self._on_device: dict[int, tuple[Any, int]] = {}
        #: The bytes of the storages that were there at the last sweep, and of those that came since.
        self._swept_bytes = self._new_bytes = 0
        self._addressed: dict[int, tuple[Any, int]] = {}
        self._sweep_at = _FIRST_SWEEP
        #: Whether new tensors are on the device unless the program says otherwise (`set_default_device`).
        self.is_default = False
        #: What is captured into a CUDA graph at the moment.
        self.recording: Recording | None = None
        #: What checks are told of torch's operators; None if nothing is checked.
        self.checks: TorchChecks | None = None

    def add(self, tensor: torch.Tensor) -> None:
        """Note that a tensor is on the device."""
        storage = _storage(tensor)
        if storage is None:
            return
        with self._lock:
            if storage._cdata in self._on_device:
                return
            size = int(storage.nbytes())
            self._on_device[storage._cdata] = _weak_reference(storage), size
            self._new_bytes += size
            # Storages are counted after some growth: each time would take too long for many small ones.
            grew = 8 * self._new_bytes > self._swept_bytes
            most = self._memory.used + self._swept_bytes + self._new_bytes
            if len(self._on_device) > self._sweep_at or (grew and most > self._memory.peak):
                self._sweep()
            if self._memory.used + self._swept_bytes + self._new_bytes <= self._memory.capacity:
                return
            del self._on_device[storage._cdata]
        raise out_of_memory(size, self._memory.capacity)

    def _sweep(self) -> None:
        """Forget storages that are gone, and count the bytes of the others."""
        self._on_device = {key: entry for key, entry in self._on_device.items() if not entry[0].expired()}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._on_device))
        self._swept_bytes, self._new_bytes = sum(size for _, size in self._on_device.values()), 0
        self._memory.peak = max(self._memory.peak, self._memory.used + self._swept_bytes)

    def allocated(self) -> int:
        """Return the bytes of the device that tensors and the program's own allocations have."""
        with self._lock:
            self._sweep()
            return self._memory.used + self._swept_bytes

    def __contains__(self, tensor: object) -> bool:
        storage = _storage(tensor) if isinstance(tensor, torch.Tensor | torch.UntypedStorage) else None
        return storage is not None and storage._cdata in self._on_device

    def address(self, tensor: torch.Tensor) -> int:
        """Return the address of a tensor's first element; kernels may use its memory from now on."""
        with torch._C.DisableTorchFunction():
            place = int(torch.Tensor.data_ptr(tensor))
            storage = _storage(tensor)
            if storage is None or not place:
                return place
            self.forget_expired()
            if storage._cdata in self._addressed:
                return place
            start, size = int(storage.data_ptr()), int(storage.nbytes())
            kind = str(tensor.dtype).removeprefix("torch.")
            made = self.checks.made_at(start) if self.checks is not None else ""
            title = f"the tensor at {start:#x} ({kind}, {tuple(tensor.shape)}{made})"
        with self._lock:
            self._memory.adopt(start, size, title)
            self._addressed[storage._cdata] = _weak_reference(storage), start
        return place

    def forget_expired(self) -> None:
        """Take the memory of storages that are gone out of the reach of kernels."""
        if self.checks is not None:
            self.checks.forget_expired()
        with self._lock:
            for key, (reference, start) in list(self._addressed.items()):
                if reference.expired():
                    self._memory.disown(start)
                    del self._addressed[key]

    def held(self) -> list[torch.UntypedStorage]:
        """Return the storages whose addresses kernels may use: they stay while somebody has the list.

        What is gone by now is out of the reach of kernels.
        """
        self.forget_expired()
        with self._lock:
            references = [reference for reference, _ in self._addressed.values()]
        return [torch.UntypedStorage._new_with_weak_ptr(reference.cdata) for reference in references]


def _storage(tensor: torch.Tensor | torch.UntypedStorage) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None if it has none, as sparse ones."""
    if isinstance(tensor, torch.UntypedStorage):
        return tensor
    try:
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage()
    except RuntimeError:  # sparse tensors have no storage, and torch raises a kind of it when asked for one
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # in torch.func.grad and vmap
        return _storage(torch._C._functorch.get_unwrapped(tensor)) if wrapped else None


def _is_fake(args: tuple[object, ...]) -> bool:
    """Return whether a call computes shapes alone, as compilers do: such tensors have no memory to note.

    A question that compilers ask of a real tensor meanwhile, such as its device, is none of these.
    """
    if any(isinstance(argument, FakeTensor) for argument in args):
        return True
    tracing = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return tracing and not any(isinstance(argument, torch.Tensor) for argument in args)


def _is_cuda(device: object) -> bool:
    """Return whether a device is the virtual one, as text, as a number or as torch has it."""
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        device = torch.device(device)
    if not isinstance(device, torch.device) or device.type != "cuda":
        return False
    if device.index:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: {device} is asked for, and the virtual GPU is cuda:0 alone"
        )
    return True


def _is_device(value: object) -> bool:
    """Return whether a positional argument names a device."""
    return isinstance(value, torch.device) or (isinstance(value, str) and _is_cuda(value))


class DeviceMode(TorchFunctionMode):
    """Sees every call of torch's functions and methods, and keeps track of what is on the device."""

    def __init__(self, storages: DeviceStorages) -> None:
        super().__init__()
        self.storages = storages
        tensor: Any = torch.Tensor
        self._own: dict[object, Callable[..., object]] = {
            torch.device: torch.device,  # naming the device asks for no memory on it
            torch._C._nn._parse_to: torch._C._nn._parse_to,  # nor does reading the arguments of module.to()
            tensor.device.__get__: lambda x: _CUDA if x in storages else x.device,
            tensor.is_cuda.__get__: lambda x: x in storages,
            tensor.is_cpu.__get__: lambda x: x not in storages,
            tensor.get_device: lambda x: 0 if x in storages else -1,
            tensor.data_ptr: storages.address,
            tensor.__dlpack__: self._dlpack,
            tensor.__dlpack_device__: lambda x: (DLPACK_CUDA if x in storages else DLPACK_HOST, 0),
            tensor.__cuda_array_interface__.__get__: self._cuda_array_interface,
            tensor.cuda: self._cuda,
            tensor.cpu: self._cpu,
            tensor.to: self._to,
            tensor.numpy: self._numpy,
            tensor.__array__: self._array,
            tensor.pin_memory: lambda x, *_: x,
            tensor.is_pinned: lambda x, *_: x not in storages,
            tensor.type: self._type,
        }

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:  # fmt: skip
        """Answer a call: by a function of this class, or by torch on host memory."""
        kwargs = dict(kwargs or {})
        if _is_fake(args):
            args, kwargs = tree_map(lambda value: _CUDA if _is_cuda(value) else value, (args, kwargs))
            return func(*args, **kwargs)  # with its number: a build for CPUs has no current device
        own = self._own.get(func)
        if own is not None:
            return own(*args, **kwargs)
        return self._on_host(func, args, kwargs)

    def _on_host(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Let torch compute in host memory, and note whether the result is on the device."""
        asked = kwargs.get("device")
        if asked is None:
            asked = next((argument for argument in args if _is_device(argument)), None)
        if asked is None and self.storages.is_default and func in _device_constructors():
            asked = _CUDA
        if isinstance(asked, int) and not isinstance(asked, bool):
            asked = kwargs["device"] = _CUDA
        if _is_cuda(asked):
            args = tuple(
                _HOST if _is_device(argument) and _is_cuda(argument) else argument for argument in args
            )
            if "device" in kwargs:
                kwargs["device"] = _HOST
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        operands = tensors_among((args, kwargs))
        if getattr(func, "__name__", "") in _SAME_DEVICE:
            self._require_same_device(operands)
        by_operands = asked is None and any(operand in self.storages for operand in operands)
        on_device = by_operands or _is_cuda(asked)
        # What is written in place, as by copy_, stays where it is.
        on_host = [operand for operand in operands if operand not in self.storages] if by_operands else []
        result = _computed(func, args, kwargs, on_device)
        if on_device:
            for tensor in tensors_among(result):
                if not any(tensor is operand for operand in on_host):
                    self.storages.add(tensor)
            if self.storages.recording is not None:
                self.storages.recording.add_operator(func, args, kwargs, result)
            if self.storages.checks is not None:
                self.storages.checks.made(func, result, asked is not None)
        return result

    def _require_same_device(self, operands: list[torch.Tensor]) -> None:
        """Raise torch's error if operands are on the device and in host memory, where only numbers may be."""
        places = [(operand in self.storages, operand.ndim) for operand in operands]
        on_device = [is_there for is_there, axes in places if axes or is_there]
        if any(on_device) and not all(on_device):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
                "and cpu!"
            )

    # methods ------------------------------------------------------------------------------------------------

    def _cuda(self, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Return a tensor on the device: itself if it is, else a copy."""
        if tensor in self.storages:
            return tensor
        moved = tensor.clone()
        self.storages.add(moved)
        self._copied(moved, *_, **__)
        return moved

    def _copied(
        self, moved: object = None, device: object = None, non_blocking: bool = False, **_: object
    ) -> None:
        """Tell checks of a copy between host and device; the host waits for it unless it is non_blocking."""
        if self.storages.checks is not None:
            if moved is not None:
                self.storages.checks.made(torch.Tensor.copy_, moved, True)
            if not non_blocking:
                self.storages.checks.wait()

    def _cpu(self, tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        """Return a tensor in host memory: itself if it is, else a copy."""
        if tensor not in self.storages:
            return tensor
        copy = tensor.clone()
        self._copied()
        return copy

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return a tensor of another type, or on another device."""
        device = kwargs.get("device", next((argument for argument in args if _names_device(argument)), None))
        other = kwargs.get(
            "other", next((argument for argument in args if isinstance(argument, torch.Tensor)), None)
        )
        if isinstance(device, int):
            device = _CUDA
        if other is not None:
            device = _CUDA if other in self.storages else _HOST
        here = tensor in self.storages
        goal = here if device is None else _is_cuda(device)
        args = tuple(_HOST if _names_device(argument) else argument for argument in args)
        if "device" in kwargs:
            kwargs["device"] = _HOST
        result = tensor.to(*args, **kwargs)
        old, new = _storage(tensor), _storage(result)
        if goal != here and old is not None and new is not None and old._cdata == new._cdata:
            result = result.clone()
        if goal:
            self.storages.add(result)
        if goal != here:
            self._copied(result if goal else None, non_blocking=bool(kwargs.get("non_blocking")))
        return result

    def _dlpack(self, tensor: torch.Tensor, *args: object, **kwargs: Any) -> object:
        """Return the capsule of a tensor, whose memory kernels may use from now on."""
        self.storages.address(tensor)
        for name in ("stream", "dl_device"):
            kwargs.pop(name, None)
        capsule = tensor.__dlpack__(**kwargs)
        if tensor in self.storages:
            set_capsule_device(capsule, DLPACK_CUDA)
        return capsule

    def _cuda_array_interface(self, tensor: torch.Tensor) -> dict[str, object]:
        """Return what other libraries ask of an array on the device."""
        if tensor not in self.storages:
            raise AttributeError(
                "Can't get __cuda_array_interface__ on non-CUDA tensor type: torch.FloatTensor; use "
                'tensor.to("cuda")'
            )
        if tensor.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")
        own = tensor.detach().numpy().__array_interface__
        strides = (
            None if tensor.is_contiguous() else tuple(stride * tensor.itemsize for stride in tensor.stride())
        )
        place = self.storages.address(tensor) if tensor.numel() else 0
        return {
            "typestr": own["typestr"],
            "shape": tuple(tensor.shape),
            "strides": None if tensor.is_contiguous() else strides,
            "data": (place, False),
            "version": 2,
        }

    def _numpy(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> AnyArray:
        """Return the array of a tensor in host memory; of one on the device it is an error, as on a GPU."""
        if tensor in self.storages:
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                "host memory first."
            )
        array: AnyArray = tensor.numpy(*args, **kwargs)
        return array

    def _array(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the array that NumPy asks a tensor in host memory for."""
        self._numpy(tensor.detach())
        return tensor.__array__(*args, **kwargs)

    def _type(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the name of a tensor's type, or the tensor as another type."""
        if not args and not kwargs:
            name: str = tensor.type()
            return name.replace("torch.", "torch.cuda.") if tensor in self.storages else name
        return self._on_host(torch.Tensor.type, (tensor, *args), kwargs)


def _names_device(value: object) -> bool:
    """Return whether an argument of `tensor.to` names a device."""
    return isinstance(value, torch.device | str) or (isinstance(value, int) and not isinstance(value, bool))


def _computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: bool) -> Any:
    """Return what a function gives in host memory, with the types that a GPU computes in."""
    try:
        if func is torch._scaled_mm:
            return scaled_mm(*args, **kwargs)
        if on_device and func in _PRODUCTS and kwargs.get("out_dtype") is not None:
            # A GPU alone has these: products of half precision that are not rounded to it.
            kind = kwargs.pop("out_dtype")
            return func(
                *(argument.to(kind) if isinstance(argument, torch.Tensor) else argument for argument in args),
                **kwargs,
            )
        return _widened(func, args, kwargs) if func in _WIDENED else func(*args, **kwargs)
    except RuntimeError as error:
        if on_device and "can't allocate memory" in str(error):  # the words of torch's allocator
            raise torch.OutOfMemoryError(f"CUDA out of memory: the host has none left ({error})") from None
        raise


def out_of_memory(size: int, capacity: int) -> Exception:
    """Return torch's error for memory that the device does not have."""
    error: Exception = torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {size:,} bytes; the virtual GPU has {capacity:,} in all, and "
        "virtual_gpu(…, memory_gib=…) sets them"
    )
    return error


def _widened(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a function of half-precision tensors in float32, and round its result."""
    kind = args[0].dtype if args and isinstance(args[0], torch.Tensor) else None
    if kind not in _HALF or not rounds_to_its_own_type(func):
        return func(*args, **kwargs)
    args, kwargs = in_float32((args, kwargs))
    return func(*args, **kwargs).to(kind)


def _keep_in_files(storages: DeviceStorages, patches: Patches) -> None:
    """Let `torch.save` note which tensors are on the device, and `torch.load` put them there again."""
    serialization: Any = torch.serialization

    def tag(storage: Any) -> str | None:
        return str(_CUDA) if storage in storages else None

    def restore(storage: Any, location: str) -> Any:
        if not _is_cuda(location):
            return None
        storages.add(storage)
        return storage

    before = list(serialization._package_registry)
    serialization.register_package(0, tag, restore)  # before torch's own
    patches.callback(serialization._package_registry.__setitem__, slice(None), before)


def _follow_backward(storages: DeviceStorages, patches: Patches) -> None:
    """Let backward passes that programs write see their gradients on the device, where the operands are.

    torch runs a backward pass within one call of its own, for which the mode is off.
    """
    classes: Any = torch.autograd.function
    own_apply = vars(classes.Function)["apply"].__func__

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        results = own_apply(function, *args, **kwargs)
        if any(tensor in storages for tensor in tensors_among((args, kwargs))):
            with torch._C.DisableTorchFunction():
                nodes = [tensor.grad_fn for tensor in tensors_among(results) if tensor.grad_fn is not None]
            for node in nodes:
                if isinstance(node, classes.BackwardCFunction):
                    node._lanewise_on_device = True
        return results

    def backward(own: Any, node: Any, *gradients: Any) -> Any:
        if getattr(node, "_lanewise_on_device", False) or any(map(storages.__contains__, node.saved_tensors)):
            for tensor in tensors_among(gradients):
                storages.add(tensor)
        with DeviceMode(storages):
            return own(node, *gradients)

    patches.set(classes.Function, "apply", classmethod(apply))
    patches.wrap(classes.BackwardCFunction, "apply", backward)


def install(gpu: FrameworkState, patches: Patches) -> None:
    """Let "cuda" be the virtual GPU in torch, until the patches are taken back."""
    align_tensors()
    storages = DeviceStorages(gpu.driver)
    gpu.torch = storages
    patches.enter_context(DeviceMode(storages))
    if gpu.driver.memory.is_followed:
        storages.checks = patches.enter_context(TorchChecks(storages, gpu.driver))

    def run(own: Callable[[threading.Thread], None], thread: threading.Thread) -> None:
        with DeviceMode(storages), storages.checks or nullcontext():  # a mode belongs to one thread
            own(thread)

    patches.wrap(threading.Thread, "run", run)
    _follow_backward(storages, patches)
    _keep_in_files(storages, patches)

    def set_default_device(own: Any, device: Any) -> None:
        storages.is_default = _is_cuda(device)
        own(None if storages.is_default else device)  # torch's own rule comes after the mode, and has no GPU

    def get_default_device(own: Any) -> Any:
        return _CUDA if storages.is_default else own()

    patches.wrap(torch, "set_default_device", set_default_device)
    patches.wrap(torch, "get_default_device", get_default_device)
    # a build for CUDA would allocate a tensor on a real GPU here, before it makes one without data
    patches.set(fake_tensor, "init_gpu_context", lambda *_: None)
    patches.set(torch.Tensor, "record_stream", lambda *_: None)  # a stream of ours is none to torch's parser
    install_torch_cuda(gpu, patches)
    install_torch_autocast(patches)
    install_torch_dlpack(gpu, patches)
    install_torch_extension(gpu, patches)


def install_operators(gpu: FrameworkState, patches: Patches) -> None:
    """Let lanewise's operators compute on the virtual GPU: torch calls their functions with the mode off."""
    import lanewise.torch as operators

    def on_device(own: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
        with DeviceMode(gpu.torch):
            return own(*tensors, **options)

    for name in ("matmul_of_operator", "attention_of_operator"):
        patches.wrap(operators, name, on_device)
