"""What only host code has: names of the host's libraries and types, and kernel launches `<<<…>>>`."""

import re
from collections.abc import Sequence

from lanewise.ptx.cplusplus.tokens import Token, TokenKind

#: Identifiers that only code for the host uses.
_HOST = re.compile(
    r"""cuda[A-Z]\w+ | cu(?:blas|dnn|fft|sparse|solver|dss|file|pti)[A-Z]\w*
    | (?:CUBLAS|CUDNN|CUFFT|NCCL|MPI|NVTX)_\w+ | nccl[A-Z]\w* | nvtx\w+ | nvrtc[A-Z]\w* | nvml[A-Z]\w*
    | curand(?:Create|Destroy|Generate|Set(?:Stream|PseudoRandom|GeneratorO|Quasi))\w* | curandGenerator_t
    | cu(?:Module|Launch|Ctx|Device|Mem|Init|Func|Get|Stream|Event|Link|Graphics|Driver|TensorMapE)\w*
    | torch | c10 | pybind11 | PYBIND11_\w+ | TORCH_\w+ | AT_\w+ | Tensor
    | gl[A-Z]\w+ | glut\w+ | GL[a-z]\w+
    | cout | cerr | cin | clog | endl | [io]?fstream | [io]?stringstream | ostream | istream | iomanip
    | setprecision | getline | unique_ptr | shared_ptr | unordered_(?:map|set) | runtime_error | logic_error
    | mt19937(?:_64)? | random_device | default_random_engine | \w+_distribution | chrono
    | (?:device|host)_vector | device_ptr
    | argv | argc | fprintf | fopen | fclose | fread | fwrite | fputs | fflush | FILE | stderr | stdout
    | exit | abort | getenv | s?rand(?:om)? | gettimeofday | clock_gettime | perror | ato[fil]l? | strcmp
    | strtol | getopt | usleep | sleep | omp_\w+ | pthread_\w+ | HANDLE | LARGE_INTEGER
    | sdk\w+ | checkCudaErrors | getLastCudaError | findCudaDevice | gpuGetMaxGflopsDeviceId""",
    re.VERBOSE,
)
#: Types that belong to the host when they stand behind `std::`.
_HOST_STANDARD = frozenset(
    ("vector", "string", "map", "set", "list", "deque", "queue", "thread", "mutex", "function", "to_string",
     "random", "atomic", "future", "filesystem", "exception", "ios", "string_view", "stack", "any", "variant")
)  # fmt: skip
#: Beside one of these, `Tensor` is CuTe's and not torch's.
_CUTE = frozenset(
    ("cute", "make_tensor", "make_identity_tensor", "make_tensor_like", "get_tma_tensor", "local_tile")
)
_HINT = re.compile(
    rf"\b(?:{_HOST.pattern})\b|\bmain\b|<<<|<<\s+<|\bstd\s*::\s*(?:{'|'.join(_HOST_STANDARD)})\b", re.VERBOSE
)


def holds_host_code(text: str) -> bool:
    """Whether a header may hold host code, so that its declarations have to be judged."""
    return _HINT.search(text) is not None


def is_host_code(tokens: Sequence[Token]) -> bool:
    """Whether tokens are of the host: a launch, or names that only host code has."""
    for at, token in enumerate(tokens):
        if token.kind is TokenKind.NAME:
            if _HOST.fullmatch(token.text) and not (token.text == "Tensor" and _is_cute(tokens)):
                return True
            if token.text == "std" and at + 2 < len(tokens) and tokens[at + 2].text in _HOST_STANDARD:
                return True
            if token.text in ("at", "py") and at + 1 < len(tokens) and tokens[at + 1].text == "::":
                return True
    return launch_in(tokens) is not None


def _is_cute(tokens: Sequence[Token]) -> bool:
    """Whether tokens use CuTe."""
    return any(token.text in _CUTE for token in tokens)


def launch_in(tokens: Sequence[Token]) -> int | None:
    """The index of the first launch `<<<` among tokens, however it is spaced."""
    for at in range(1, len(tokens) - 2):
        if tokens[at].text == "<" and is_launch(tokens, at) and tokens[at - 1].text != "operator":
            return at
    return None


def is_launch(tokens: Sequence[Token], at: int) -> bool:
    """Whether `<<<` begins at an index, written together or apart."""
    return [token.text for token in tokens[at : at + 3]] == ["<", "<", "<"]
