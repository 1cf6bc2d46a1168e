"""Which declarations of a program are device code, and which are host code that a compiler of PTX leaves out.

Each declaration is judged by what it is: functions say where they run; a function that does not say so, and a
variable that is not constant, stay only if device code names them. What is left out becomes blank, so that
every line keeps its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lanewise.ptx.cplusplus.declarations import Declaration, Kind, declarations, members
from lanewise.ptx.cplusplus.tokens import Lines, Token, TokenKind, directive, tokens

#: What says that a declaration is for the device.
_DEVICE = frozenset(
    ("__global__", "__device__", "__constant__", "__managed__", "__shared__", "__grid_constant__",
     "_CG_QUALIFIER", "_CG_CONST_DECL", "_CCCL_DEVICE", "_CCCL_HOST_DEVICE", "_CCCL_API", "_CCCL_DEVICE_API",
     "__CUDA_FP16_DECL__", "__CUDA_HOSTDEVICE__", "_LIBCUDACXX_INLINE_VISIBILITY")
)  # fmt: skip
#: Identifiers that only code for the host uses.
_HOST = re.compile(
    r"""cuda[A-Z]\w+ | cu(?:blas|dnn|fft|sparse|solver|dss|file|pti)[A-Z]\w* | (?:CUBLAS|CUDNN|CUFFT|NCCL|MPI|NVTX)_\w+
    | nccl[A-Z]\w* | nvtx\w+ | nvrtc[A-Z]\w* | nvml[A-Z]\w*
    | curand(?:Create|Destroy|Generate|Set(?:Stream|PseudoRandom|GeneratorO|Quasi))\w* | curandGenerator_t
    | cu(?:Module|Launch|Ctx|Device|Mem|Init|Func|Get|Stream|Event|Link|Graphics|Driver|TensorMapE)\w*
    | torch | c10 | pybind11 | PYBIND11_\w+ | TORCH_\w+ | AT_\w+ | Tensor | gl[A-Z]\w+ | glut\w+ | GL[a-z]\w+
    | cout | cerr | cin | clog | endl | [io]?fstream | [io]?stringstream | ostream | istream | unique_ptr | shared_ptr
    | unordered_(?:map|set) | runtime_error | logic_error | mt19937(?:_64)? | random_device | chrono | getline
    | default_random_engine | \w+_distribution | (?:device|host)_vector | device_ptr | iomanip | setprecision
    | argv | argc | fprintf | fopen | fclose | fread | fwrite | fputs | fflush | FILE | exit | abort | getenv
    | s?rand(?:om)? | gettimeofday | clock_gettime | perror | ato[fil]l? | strcmp | strtol | getopt | stderr | stdout
    | omp_\w+ | pthread_\w+ | HANDLE | LARGE_INTEGER | usleep | sleep | sdk\w+ | checkCudaErrors | getLastCudaError
    | findCudaDevice | gpuGetMaxGflopsDeviceId""",
    re.VERBOSE,
)
#: Types that belong to the host when they stand behind `std::`.
_HOST_STANDARD = frozenset(
    ("vector", "string", "map", "set", "list", "deque", "queue", "thread", "mutex", "function", "to_string",
     "random", "atomic", "future", "filesystem", "exception", "ios", "string_view", "stack", "any", "variant")
)  # fmt: skip
#: Why a declaration is left out that the compiler complained about.
BY_THE_COMPILER = "the compiler's complaint"
_LAUNCH = ("<", "<", "<")
#: Device functions by which a kernel starts other work; the machine has no runtime on the device.
_STARTS_WORK = re.compile(
    r"cudaLaunch\w+|cudaGraph(?:Launch|SetConditional|KernelNode\w+)|cudaGetCurrentGraphExec|cudaGetParameterBuffer\w*"
    r"|cuda(?:Stream|Event)(?:Create|Destroy|Wait|Record)\w*|cudaDeviceSynchronize|cuda(?:Malloc|Free|Mem(?:cpy|set)\w*)"
)
_KEPT_DIRECTIVES = ("if", "ifdef", "ifndef", "elif", "else", "endif", "define", "undef", "include", "elifdef", "elifndef")
_HINT = re.compile(rf"\b(?:{_HOST.pattern})\b|\bmain\b|<<<|<<\s+<|\bstd\s*::\s*(?:{'|'.join(_HOST_STANDARD)})\b", re.VERBOSE)


@dataclass(eq=False)
class SourceFile:
    """A file of the program: its text, its declarations, and those that are not compiled."""

    name: str
    text: str
    #: Whether declarations are judged; headers that hold no host code are taken as they are.
    is_split: bool = True
    declared: list[Declaration] = field(default_factory=list, repr=False)
    blanked: dict[Declaration, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.lines = Lines(self.text)
        self.tokens: list[Token] = []
        if self.is_split:
            self.split()

    def split(self) -> None:
        """Find the declarations."""
        self.is_split = True
        self.tokens = tokens(self.text)
        self.declared = declarations(self.tokens)

    def at_line(self, line: int) -> Declaration | None:
        """The declaration that a line belongs to."""
        for each in self.declared:
            if self.lines.at(each.start) <= line <= self.lines.at(each.end - 1):
                return each
        return None

    def line(self, declaration: Declaration) -> int:
        """The line on which a declaration begins."""
        return self.lines.at(declaration.start)

    def compiled_text(self) -> str:
        """The text with blanks for what is left out; conditionals, macros and includes stay."""
        if not self.blanked:
            return self.text
        pieces, done = [], 0
        for each in sorted(self.blanked, key=lambda one: one.start):
            if each.start < done:
                continue
            kept = [
                token
                for token in self.tokens
                if token.kind is TokenKind.DIRECTIVE
                and each.start <= token.start < each.end
                and directive(token.text)[0] in _KEPT_DIRECTIVES
            ]
            pieces.append(self.text[done : each.start])
            done = each.start
            for token in kept:
                pieces += [_blank(self.text[done : token.start]), token.text]
                done = token.end
            pieces.append(_blank(self.text[done : each.end]))
            done = each.end
        return "".join([*pieces, self.text[done:]])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def holds_host_code(text: str) -> bool:
    """Whether a header may hold host code, so that its declarations have to be judged."""
    return _HINT.search(text) is not None


class Program:
    """All files of a program together: macros, and which declarations are needed on the device."""

    def __init__(self, files: Sequence[SourceFile], wanted: Iterable[str] = ()) -> None:
        self.files = files
        self.wanted = set(wanted)
        self.macros = _macros(files)
        self.device_words = _closure(_DEVICE, self.macros)
        self.device_templates = frozenset(
            name
            for file in files
            for each in file.declared
            if each.is_template and self.is_device(each)
            for name in each.names
        )
        self.refused: dict[str, str] = {}
        for file in files:
            file.blanked = {each: why for each, why in file.blanked.items() if why == BY_THE_COMPILER}
        self._refuse_launches()
        self._judge()

    def is_device(self, each: Declaration) -> bool:
        """Whether a declaration says that it is for the device, by itself or by a macro."""
        words = each.words() if each.kind is Kind.MACRO_CALL else each.head_words()
        return not words.isdisjoint(self.device_words)

    def is_kernel(self, each: Declaration) -> bool:
        """Whether a declaration is a kernel, by itself or by a macro."""
        return each.kind is not Kind.TYPE and "__global__" in each.head_words() | self._expanded(each)

    def is_host(self, each: Declaration) -> bool:
        """Whether a declaration uses what only the host has, by itself or by a macro."""
        return is_host_code(each.tokens) or any(
            is_host_code(self.macros[word].tokens)
            for word in _closure_from(each.words() & self.macros.keys(), self.macros)
        )

    def _judge(self) -> None:
        kept: list[Declaration] = []
        waiting: list[tuple[SourceFile, Declaration]] = []
        used: set[str] = set(self.wanted)
        for file in self.files:
            if not file.is_split:
                used |= set(re.findall(r"[^\W\d]\w*", file.text))
                continue
            for each in file.declared:
                if each in file.blanked:
                    continue
                if self._stays(each):
                    kept.append(each)
                elif self._may_stay(each):
                    waiting.append((file, each))
                else:
                    file.blanked[each] = "host code"
        fresh = used | {word for each in kept for word in each.words()}
        used = set()
        while fresh:
            used |= fresh
            for word in list(fresh):
                if word in self.macros:
                    fresh |= self.macros[word].words
            used |= fresh
            reached = [(file, each) for file, each in waiting if not each.names.isdisjoint(used)]
            waiting = [pair for pair in waiting if pair[1].names.isdisjoint(used)]
            fresh = {word for _, each in reached for word in each.words()} - used
        for file, each in waiting:
            file.blanked[each] = "host code"
        for file in self.files:
            for each in file.declared:
                if each not in file.blanked and each.kind is Kind.TYPE and self.is_host(each):
                    self._judge_members(file, each, used)

    def _judge_members(self, file: SourceFile, declaration: Declaration, used: set[str]) -> None:
        """Leave out the host functions of a class that device code uses."""
        for each in members(declaration):
            if each.kind is Kind.FUNCTION and not self.is_device(each) and self.is_host(each):
                file.blanked[each] = "host code"

    def _stays(self, each: Declaration) -> bool:
        """Whether it is device code by itself, whatever else there is."""
        if each.kind is Kind.MACRO_CALL:
            known = self.macros.get(each.tokens[0].text)
            return known is not None and (self.is_device(each) or not self.is_host(each))
        if self.is_device(each):
            return True
        if each.kind is Kind.FUNCTION:
            return not each.head_words().isdisjoint(("constexpr", "consteval")) and not self.is_host(each)
        if each.kind is Kind.VARIABLE:
            return not each.head_words().isdisjoint(("const", "constexpr")) and not self.is_host(each)
        return each.kind is not Kind.MACRO_CALL and not self.is_host(each)

    def _may_stay(self, each: Declaration) -> bool:
        """Whether it stays if device code names it: not what says or shows that it is for the host."""
        if each.kind is Kind.TYPE or each.kind is Kind.ALIAS:
            return True
        if each.is_instantiation and each.names.isdisjoint(self.device_templates):
            return False
        words = each.head_words()
        if "main" in each.names or "__host__" in words or each.kind in (Kind.MACRO_CALL, Kind.USING):
            return False
        return not self.is_host(each)

    def is_needed(self, each: Declaration) -> bool:
        """Whether a kernel, or what a kernel names, is declared by it: the compiler's complaint is then told."""
        return each in self._needed()

    def _needed(self) -> set[Declaration]:
        everything = [each for file in self.files for each in file.declared if each not in file.blanked]
        needed = {each for each in everything if self.is_kernel(each)}
        needed |= {each for each in everything if not each.names.isdisjoint(self.wanted)}
        rest = [each for each in everything if each not in needed]
        fresh = {word for each in needed for word in each.words()}
        used: set[str] = set()
        while fresh:
            used |= fresh
            for word in list(fresh):
                if word in self.macros:
                    used |= self.macros[word].words
            reached = [
                each
                for each in rest
                if not each.names.isdisjoint(used) and (self.is_device(each) or each.kind is not Kind.FUNCTION)
            ]
            needed.update(reached)
            rest = [each for each in rest if each not in needed]
            fresh = {word for each in reached for word in each.words()} - used
        return needed

    def _expanded(self, each: Declaration) -> frozenset[str]:
        """The words of the macros that the head of a declaration uses."""
        names = _closure_from(each.head_words() & self.macros.keys(), self.macros)
        return frozenset(word for name in names for word in self.macros[name].words)

    def _refuse_launches(self) -> None:
        """Leave out device functions that launch kernels, and those that call them, and say why."""
        for file in self.files:
            for each in file.declared:
                if each.kind is not Kind.FUNCTION or not self.is_device(each) or "__host__" in each.head_words():
                    continue
                at = launch_in(each.tokens)
                starts = next((token for token in each.tokens if _STARTS_WORK.fullmatch(token.text)), None)
                token = each.tokens[at] if at is not None else starts
                if token is None:
                    continue
                line = file.lines.at(token.start)
                what = "launches a kernel" if at is not None else f"calls {token.text}"
                for name in each.names:
                    self.refused[name] = (
                        f"{name} {what} on the device ({file.name}:{line}): dynamic parallelism, device graphs "
                        "and the rest of the device's runtime are not run here"
                    )
                file.blanked[each] = "dynamic parallelism"
        if not self.refused:
            return
        growing = True
        while growing:
            growing = False
            for file in self.files:
                for each in file.declared:
                    if each in file.blanked or each.kind is not Kind.FUNCTION or not self.is_device(each):
                        continue
                    called = each.words() & self.refused.keys() - each.names
                    if called and each.has_body:
                        because = self.refused[min(called)]
                        self.refused |= {name: f"{name} calls {min(called)}; {because}" for name in each.names}
                        file.blanked[each] = "dynamic parallelism"
                        growing = True
        for file in self.files:
            for each in file.declared:
                if not each.has_body and each.kind is Kind.FUNCTION and each.names & self.refused.keys():
                    file.blanked.setdefault(each, "dynamic parallelism")


def is_host_code(found: Sequence[Token]) -> bool:
    """Whether tokens are of the host: a launch, or names that only host code has."""
    for at, token in enumerate(found):
        if token.kind is TokenKind.NAME:
            if _HOST.fullmatch(token.text):
                return True
            if token.text == "std" and at + 2 < len(found) and found[at + 2].text in _HOST_STANDARD:
                return True
            if token.text in ("at", "py") and at + 1 < len(found) and found[at + 1].text == "::":
                return True
    return launch_in(found) is not None


def launch_in(found: Sequence[Token]) -> int | None:
    """The index of the first launch `<<<` among tokens, however it is spaced."""
    for at in range(1, len(found) - 2):
        if found[at].text == "<" and tuple(each.text for each in found[at : at + 3]) == _LAUNCH:
            if found[at - 1].text != "operator":
                return at
    return None


# macros -------------------------------------------------------------------------------------------------


@dataclass
class Macro:
    """What a macro may expand to: the tokens of all its definitions, whichever of them holds."""

    tokens: list[Token]
    words: frozenset[str]
    parameters: tuple[str, ...] = ()


_DEFINE = re.compile(r"(?P<name>[^\W\d]\w*)(?:\((?P<parameters>[^)]*)\))?")


def _macros(files: Iterable[SourceFile]) -> dict[str, Macro]:
    found: dict[str, list[Token]] = {}
    parameters: dict[str, tuple[str, ...]] = {}
    for file in files:
        lines = (
            (token.text for token in file.tokens if token.kind is TokenKind.DIRECTIVE)
            if file.is_split
            else re.findall(r"^[ \t]*#[ \t]*define(?:\\\n|[^\n])*", file.text, re.MULTILINE)
        )
        for text in lines:
            name, rest = directive(text)
            match = _DEFINE.match(rest) if name == "define" else None
            if match:
                found.setdefault(match["name"], []).extend(tokens(rest[match.end() :]))
                if match["parameters"]:
                    parameters[match["name"]] = tuple(part.strip() for part in match["parameters"].split(","))
    return {
        name: Macro(
            body, frozenset(token.text for token in body if token.kind is TokenKind.NAME), parameters.get(name, ())
        )
        for name, body in found.items()
    }


def _closure(words: frozenset[str], macros: Mapping[str, Macro]) -> frozenset[str]:
    """Some words, and all macros that expand to one of them."""
    found = set(words)
    growing = True
    while growing:
        fresh = {name for name, macro in macros.items() if name not in found and not macro.words.isdisjoint(found)}
        found |= fresh
        growing = bool(fresh)
    return frozenset(found)


def _closure_from(names: Iterable[str], macros: Mapping[str, Macro]) -> set[str]:
    """Some macros, and all that their definitions use."""
    found, fresh = set(), set(names)
    while fresh:
        found |= fresh
        fresh = {word for name in fresh for word in macros[name].words if word in macros} - found
    return found
