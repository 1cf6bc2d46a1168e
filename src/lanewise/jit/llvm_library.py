"""LLVM as far as machine code from disk needs it: this processor's name, and an engine that loads images.

llvmlite's Python takes longer to import than that takes to do, so its library is called directly where its
functions are known to be as expected. Compiling is `machine_code.py`'s, through llvmlite.
"""

import ctypes
import os
import platform
import sys
import weakref
from collections.abc import Callable
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any

#: Releases of llvmlite whose library has the functions below with these arguments.
KNOWN_RELEASES = ((0, 45), (0, 50))
_STRING = POINTER(c_char_p)
#: Functions of llvmlite's library: what they return, what they take.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "InitializeNativeTarget": (c_int,),
    "InitializeNativeAsmPrinter": (c_int,),
    "AddSymbol": (None, c_char_p, c_void_p),
    "GetHostCPUName": (None, _STRING),
    "GetHostCPUFeatures": (c_int, _STRING),
    "GetDefaultTargetTriple": (None, _STRING),
    "DisposeString": (None, c_char_p),
    "ContextCreate": (c_void_p,),
    "ParseAssembly": (c_void_p, c_void_p, c_char_p, _STRING),
    "GetTargetFromTriple": (c_void_p, c_char_p, _STRING),
    "CreateTargetMachine": (
        c_void_p, c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p,
    ),
    "CreateMCJITCompiler": (c_void_p, c_void_p, c_void_p, c_bool, _STRING),
    "CreateObjectFile": (c_void_p, c_char_p, c_size_t),
    "MCJITAddObjectFile": (None, c_void_p, c_void_p),
    "DisposeObjectFile": (None, c_void_p),
    "FinalizeObject": (None, c_void_p),
    "DisposeExecutionEngine": (None, c_void_p),
    "ContextDispose": (None, c_void_p),
    "GetFunctionAddress": (c_uint64, c_void_p, c_char_p),
    "GetGlobalValueAddress": (c_uint64, c_void_p, c_char_p),
}  # fmt: skip


@cache
def release() -> str:
    """The version of llvmlite."""
    import llvmlite

    return str(llvmlite.__version__)


@cache
def _functions() -> dict[str, Callable[..., Any]] | None:
    """The library's functions; None where they are not known, and llvmlite's Python has to do."""
    import llvmlite

    try:
        major, minor = (int(part) for part in release().split(".")[:2])
        if os.name != "posix" or not KNOWN_RELEASES[0] <= (major, minor) <= KNOWN_RELEASES[1]:
            return None
        suffix = "dylib" if sys.platform == "darwin" else "so"
        library = ctypes.CDLL(f"{llvmlite.__path__[0]}/binding/libllvmlite.{suffix}")
        functions: dict[str, Callable[..., Any]] = {}
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = library[f"LLVMPY_{name}"]  # an object of our own, not llvmlite's
            function.restype, function.argtypes = result, arguments
            functions[name] = function
    except (ValueError, OSError, AttributeError):
        return None
    return functions


def _called_directly() -> dict[str, Callable[..., object]] | None:
    """The library's functions, unless llvmlite's Python is there anyway, with its lock."""
    return None if "llvmlite.binding" in sys.modules else _functions()


def _text(call: Callable[..., object], dispose: Callable[..., object]) -> str:
    given = c_char_p()
    call(ctypes.byref(given))
    text = (given.value or b"").decode()
    dispose(given)
    return text


@cache
def processor() -> tuple[str, str]:
    """This processor's name, and its features as LLVM lists them: '+neon,-sve'."""
    functions = _called_directly()
    if functions is None:
        from llvmlite import binding as llvm

        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    name, features = (
        _text(functions[question], functions["DisposeString"])
        for question in ("GetHostCPUName", "GetHostCPUFeatures")
    )
    # in the order of llvmlite's own list, so that both ways give the same text
    return name, ",".join(
        sorted((feature for feature in features.split(",") if feature), key=lambda feature: feature[1:])
    )


def has_feature(name: str) -> bool:
    """Whether this processor has a feature."""
    return f"+{name}" in processor()[1].split(",")


def add_symbol(name: str, address: int) -> None:
    """Let machine code that is loaded later call a function of this process by a name."""
    functions = _called_directly()
    if functions is None:
        from llvmlite import binding as llvm

        llvm.add_symbol(name, address)
    else:
        functions["AddSymbol"](name.encode(), address)


class Engine:
    """Images of machine code in memory, linked with each other, for as long as this object is referenced."""

    def __init__(self, images: list[bytes]) -> None:
        functions = _called_directly()
        #: The address of a function by name, and of a variable.
        self.function: Callable[[str], int]
        self.variable: Callable[[str], int]
        if functions is None:
            self._through_llvmlite(images)
        else:
            self._directly(images, functions)

    def _through_llvmlite(self, images: list[bytes]) -> None:
        from llvmlite import binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        name, features = processor()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True
        )
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for image in images:
            engine.add_object_file(llvm.ObjectFileRef.from_data(image))
        engine.finalize_object()
        self.function, self.variable = engine.get_function_address, engine.get_global_value_address

    def _directly(self, images: list[bytes], call: dict[str, Callable[..., Any]]) -> None:
        complaint = c_char_p()
        call["InitializeNativeTarget"]()
        call["InitializeNativeAsmPrinter"]()
        name, features = processor()
        triple = _text(call["GetDefaultTargetTriple"], call["DisposeString"]).encode()
        target = call["GetTargetFromTriple"](triple, ctypes.byref(complaint))
        machine = target and call["CreateTargetMachine"](
            target, triple, name.encode(), features.encode(), 3, b"default", b"jitdefault", 0, 1, b""
        )
        context = call["ContextCreate"]()
        module = call["ParseAssembly"](context, b"", ctypes.byref(complaint))
        own_memory = platform.machine().lower() in ("arm64", "aarch64")  # as llvmlite has it
        engine = (
            machine
            and module
            and call["CreateMCJITCompiler"](module, machine, own_memory, ctypes.byref(complaint))
        )
        if not engine:
            raise RuntimeError((complaint.value or b"LLVM has no engine").decode(errors="replace"))

        def dispose() -> None:
            # The engine owns the module and the target machine; the module is the context's.
            call["DisposeExecutionEngine"](engine)
            call["ContextDispose"](context)

        # Not at the end of the process: threads may still be in the code, and the system frees all memory.
        weakref.finalize(self, dispose).atexit = False
        for image in images:
            file = call["CreateObjectFile"](image, len(image))
            if not file:
                raise RuntimeError("LLVM cannot read the machine code")
            call["MCJITAddObjectFile"](engine, file)
            call["DisposeObjectFile"](file)
        call["FinalizeObject"](engine)
        self.function = lambda name: int(call["GetFunctionAddress"](engine, name.encode()))
        self.variable = lambda name: int(call["GetGlobalValueAddress"](engine, name.encode()))
