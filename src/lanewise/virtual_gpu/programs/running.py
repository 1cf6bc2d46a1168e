"""A program runs in a child process, so that a crash of its host code ends in a sentence and a status."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lanewise.errors import LanewiseError
from lanewise.virtual_gpu.blas import Blas
from lanewise.virtual_gpu.driver import Driver
from lanewise.virtual_gpu.driver.reserved_addresses import ReservedAddresses
from lanewise.virtual_gpu.library import DriverLibrary
from lanewise.virtual_gpu.library.driver_library import SONAME as DRIVER_NAME
from lanewise.virtual_gpu.library.program_libraries import (
    BLAS_NAMES,
    RUNTIME_NAME,
    BlasLibraries,
    RuntimeLibrary,
)
from lanewise.virtual_gpu.library.runtime_compiler import GET_CUBIN, CompilerLibrary, load_compiler
from lanewise.virtual_gpu.order.host_lines import add_program
from lanewise.virtual_gpu.programs.elf_file import ElfFile
from lanewise.virtual_gpu.programs.executable import as_library, main_address
from lanewise.virtual_gpu.programs.host_accesses import HostAccesses
from lanewise.virtual_gpu.runtime import Runtime

#: PR_SET_PDEATHSIG: the signal that a child gets when its parent ends.
_PARENT_ENDED = 1


def supervised() -> int | None:
    """Fork: return None in the child, which goes on, and the child's exit status in the parent.

    A child that a signal ended is reported in a sentence; its status is 128 and the number of the signal, as
    shells have it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PARENT_ENDED, signal.SIGKILL)
        return None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child hears it, and ends
    try:
        _, state = os.waitpid(child, 0)
    finally:
        signal.signal(signal.SIGINT, before)
    status = os.waitstatus_to_exitcode(state)
    if status >= 0:
        return status
    number = -status
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    print(
        f"lanewise: the program crashed: {name} ({_WHY.get(number, 'it was ended from outside')}); nothing "
        "after this point was run or checked",
        file=sys.stderr,
    )
    return 128 + number


_WHY: dict[int, str] = {
    signal.SIGSEGV: "its host code accessed memory that it does not have",
    signal.SIGBUS: "its host code accessed memory that it does not have",
    signal.SIGABRT: "it called abort(): an assertion or an exception that nobody caught",
    signal.SIGFPE: "its host code divided by zero",
    signal.SIGILL: "its host code has an instruction that this processor does not know",
    signal.SIGKILL: "it was killed: the host may have run out of memory",
}


#: The exit status of a program that ended well but for work that was not done, and did not ask.
_WORK_MISSING = 1
#: The stack of the thread that main() runs in.
_STACK_BYTES = 256 << 20
#: Functions that end a program: here they end main(), so that its launches can still be reported.
_ENDING = ("exit", "_exit", "_Exit", "quick_exit")
#: How functions of libraries begin that have no PTX.
_CLOSED = ("cublas", "cufft", "curand", "cudnn", "cusparse", "cusolver", "nccl", "npp", "nvjpeg")
_PAGE = 4096
_READ_WRITE = 3
#: An object of C++ (std::ios_base::Init), which keeps the streams of C++ alive.
_STREAMS = ctypes.create_string_buffer(16)
_ENDS = ctypes.CFUNCTYPE(None, ctypes.c_int32)
#: How the functions of NVRTC begin.
_COMPILER = "nvrtc"
_GETS_CUBIN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_OPENS = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int32)
_MAIN = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_char_p)
)


class _Program:
    """A loaded program: where its main() is, and how it ended."""

    def __init__(self, path: Path, title: str, runtime: RuntimeLibrary) -> None:
        self._libc = ctypes.CDLL(None)
        self.status: int | None = None
        self._process = os.getpid()
        self._over = threading.Event()
        #: The program calls these: they must live as long as the process.
        self._end = _ENDS(self._ended)
        self._open = _OPENS(self._opened)
        self._accesses = HostAccesses(runtime.runtime.driver, self._ended)
        self._own = {**dict.fromkeys(_ENDING, self._end), "dlopen": self._open}
        data = path.read_bytes()
        file = ElfFile(data)
        library = as_library(path, title, file, runtime).resolve()  # dlopen looks a bare name up elsewhere
        _prepare_streams()
        if any(symbol.startswith(_COMPILER) for symbol, _ in file.imports()):
            self._prepare_compiler(title, runtime.runtime.driver)
        try:
            self._library = ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise LanewiseError(_why_not(title, str(error))) from None
        base = _base_address(self._library)
        address = main_address(file)
        add_program(library, base, file.loaded_bytes, address or 0)
        self._replace_imports(file, base)
        if address is None:
            raise LanewiseError(f"{title} has no main(): it is no program, or its symbols were stripped")
        self._main = _MAIN(base + address)

    def _prepare_compiler(self, title: str, driver: Driver) -> None:
        """Load NVRTC, and let the driver know the PTX of the cubins that the program takes of it."""
        library = load_compiler()
        if library is None:
            raise LanewiseError(f"{title} needs NVRTC, which is not installed: pip install nvidia-cuda-nvrtc")
        compiler = CompilerLibrary(driver, library)

        def get_cubin(program: int, place: int) -> int:
            return compiler.nvrtcGetCUBIN(ctypes.c_void_p(program), ctypes.c_void_p(place))

        self._own[GET_CUBIN] = _GETS_CUBIN(get_cubin)

    def _replace_imports(self, file: ElfFile, base: int) -> None:
        """Let the functions that end a process end main() instead, and the driver be found by any name."""
        own = self._own
        for name, place in file.imports():
            if name in own:
                start = (base + place) // _PAGE * _PAGE
                self._libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(_PAGE), _READ_WRITE)
                target = ctypes.cast(own[name], ctypes.c_void_p).value or 0
                ctypes.c_uint64.from_address(base + place).value = target

    def _opened(self, name: bytes | None, mode: int) -> int:
        """Load a library as dlopen does; the driver's and the runtime's are those of the virtual GPU."""
        for soname in (DRIVER_NAME, RUNTIME_NAME, *BLAS_NAMES):
            if name is not None and name.startswith(soname.partition(".so")[0].encode() + b".so"):
                name = soname.encode()
        self._libc.dlopen.restype = ctypes.c_void_p
        return int(self._libc.dlopen(ctypes.c_char_p(name), ctypes.c_int32(mode)) or 0)

    def _ended(self, status: int) -> None:
        """End main() with a status; the thread that called exit() waits for ever.

        A process that the program forked has no other thread, and ends itself.
        """
        if os.getpid() != self._process:
            self._libc.fflush(None)
            os._exit(status & 0xFF)
        self._finish(status)
        threading.Event().wait()

    def _finish(self, status: int) -> None:
        self._libc.fflush(None)
        if self.status is None:
            self.status = status & 0xFF
        self._over.set()

    def run(self, arguments: Sequence[str]) -> int:
        """Call main() in a thread of its own; return its exit status."""
        words = [argument.encode(errors="surrogateescape") for argument in arguments]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        environment = [
            f"{name}={value}".encode(errors="surrogateescape") for name, value in os.environ.items()
        ]
        envp = (ctypes.c_char_p * (len(environment) + 1))(*environment, None)

        self._accesses.catch()

        def main() -> None:
            self._finish(self._main(len(words), argv, envp))

        before = threading.stack_size(_STACK_BYTES)
        thread = threading.Thread(target=main, daemon=True, name="main of the program")
        try:
            thread.start()
        finally:
            threading.stack_size(before)
        self._over.wait()
        assert self.status is not None
        return self.status


def run_program(path: Path, arguments: Sequence[str], driver: Driver, name: str | None = None) -> int:
    """Run a program on a virtual GPU; return the exit status of its main().

    `path` is a library that `build` made, or an executable; `name` is what main() gets as argv[0].
    """
    driver.memory.reserved = ReservedAddresses()
    driver_library = DriverLibrary(driver)
    runtime = Runtime(driver)
    runtime_library, blas_libraries = RuntimeLibrary(runtime), BlasLibraries(Blas(driver))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        with _where_python_prints():
            title = name or str(path)
            status = _Program(path, title, runtime_library).run([title, *arguments])
        if status == 0 and (missed := runtime.refusals.missed):
            print(f"lanewise: {missed}", file=sys.stderr, flush=True)
            return _WORK_MISSING
        return status
    except KeyboardInterrupt:
        print("lanewise: interrupted", file=sys.stderr, flush=True)
        os._exit(128 + signal.SIGINT)  # threads of the program still run
    finally:
        blas_libraries.close()
        runtime_library.close()
        driver_library.close()


@contextmanager
def _where_python_prints() -> Iterator[None]:
    """Within it, what a program prints goes to stderr if what Python prints does: stdout is for data then."""
    if sys.stdout is not sys.stderr:
        yield
        return
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


def _prepare_streams() -> None:
    """Let C++ make std::cout and the like: an executable copies them into memory of its own."""
    try:
        library = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_GLOBAL)
        begin = library["_ZNSt8ios_base4InitC1Ev"]
    except (OSError, AttributeError):
        return  # the program has none, or brings its own
    begin(_STREAMS)


def _base_address(library: ctypes.CDLL) -> int:
    """Return the address that a library was loaded at: the first word of the loader's record of it."""
    return ctypes.c_uint64.from_address(library._handle).value


def _why_not(title: str, reason: str) -> str:
    """Return in words why a program could not be loaded."""
    missing = reason.rpartition("undefined symbol: ")[2] if "undefined symbol" in reason else ""
    if missing.startswith("cuda"):
        return f"{title} calls {missing}, which the virtual GPU's runtime does not have"
    if missing.startswith(_CLOSED):
        return (
            f"{title} calls {missing}: its library has machine code for GPUs alone, which cannot run on a "
            "virtual GPU; of cuBLAS, products and a few functions of vectors are answered"
        )
    if "cannot open shared object file" in reason:
        name = reason.split(":")[0]
        return (
            f"{title} needs {name}, which is not there; libraries that have machine code for GPUs alone "
            "(cuFFT, cuDNN, …) cannot run on a virtual GPU"
        )
    return f"{title} cannot be loaded: {reason}"
