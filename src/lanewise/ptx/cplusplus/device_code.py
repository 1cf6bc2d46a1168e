"""Which declarations of a program are device code, and which are host code that a compiler of PTX leaves out.

Each declaration is judged by what it is: functions say where they run; a function that does not say so, and a
variable that is not constant, stay only if device code names them.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from lanewise.ptx.cplusplus.declarations import Declaration, Kind, members
from lanewise.ptx.cplusplus.host_code import is_host_code, launch_in
from lanewise.ptx.cplusplus.macros import defined_macros, expanding_to, used_by
from lanewise.ptx.cplusplus.source_file import SourceFile

#: What says that a declaration is for the device.
_DEVICE = frozenset(
    ("__global__", "__device__", "__constant__", "__managed__", "__shared__", "__grid_constant__",
     "_CG_QUALIFIER", "_CG_CONST_DECL", "_CCCL_DEVICE", "_CCCL_HOST_DEVICE", "_CCCL_API", "_CCCL_DEVICE_API",
     "__CUDA_FP16_DECL__", "__CUDA_HOSTDEVICE__", "_LIBCUDACXX_INLINE_VISIBILITY")
)  # fmt: skip
#: What says that a function or a variable is known when the program is compiled.
_CONSTANT = {Kind.FUNCTION: ("constexpr", "consteval"), Kind.VARIABLE: ("const", "constexpr")}
#: Why a declaration is left out that the compiler complained about.
BY_THE_COMPILER = "the compiler's complaint"
#: Device functions by which a kernel starts other work; the machine has no runtime on the device.
_STARTS_WORK = re.compile(
    r"cudaLaunch\w+|cudaGraph(?:Launch|SetConditional|KernelNode\w+)|cudaGetCurrentGraphExec"
    r"|cudaGetParameterBuffer\w*|cuda(?:Stream|Event)(?:Create|Destroy|Wait|Record)\w*|cudaDeviceSynchronize"
    r"|cuda(?:Malloc|Free|Mem(?:cpy|set)\w*)"
)


class Program:
    """All files of a program together: macros, and which declarations are needed on the device."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        wanted: Iterable[str] = (),
        complaints: Collection[tuple[str, int]] = (),
    ) -> None:
        """Judge the files; `complaints` are files and lines of which the compiler complained before."""
        self.files = files
        self.complaints = complaints
        #: Lines inside `#if` on which a device function starts other work, if the compiler reads them at all.
        self.guarded: set[tuple[str, int]] = set()
        self.wanted = set(wanted)
        self.macros = defined_macros(files)
        self.device_words = expanding_to(_DEVICE, self.macros)
        for_device = [
            declaration for file in files for declaration in file.declared if self.is_device(declaration)
        ]
        self.device_templates = frozenset(
            name for declaration in for_device if declaration.is_template for name in declaration.names
        )
        self.device_names = frozenset(name for declaration in for_device for name in declaration.names)
        self.refused: dict[str, str] = {}
        for file in files:
            file.blanked = {
                declaration: why for declaration, why in file.blanked.items() if why == BY_THE_COMPILER
            }
        self._refuse_launches()
        self._judge()

    def is_device(self, declaration: Declaration) -> bool:
        """Whether a declaration says that it is for the device, by itself or by a macro."""
        words = declaration.words() if declaration.kind is Kind.MACRO_CALL else declaration.head_words()
        return not words.isdisjoint(self.device_words)

    def is_kernel(self, declaration: Declaration) -> bool:
        """Whether a declaration is a kernel, by itself or by a macro."""
        return (
            declaration.kind is not Kind.TYPE
            and "__global__" in declaration.head_words() | self._expanded(declaration)
        )

    def is_host(self, declaration: Declaration) -> bool:
        """Whether a declaration uses what only the host has, by itself or by a macro."""
        return is_host_code(declaration.tokens) or any(
            is_host_code(self.macros[word].tokens)
            for word in used_by(declaration.words() & self.macros.keys(), self.macros)
        )

    def _judge(self) -> None:
        kept: list[Declaration] = []
        waiting: list[tuple[SourceFile, Declaration]] = []
        used: set[str] = set(self.wanted)
        for file in self.files:
            if not file.is_split:
                used |= set(re.findall(r"[^\W\d]\w*", file.text))
                continue
            for declaration in file.declared:
                if declaration in file.blanked:
                    continue
                if self._stays(declaration):
                    kept.append(declaration)
                elif self._may_stay(declaration):
                    waiting.append((file, declaration))
                else:
                    file.blanked[declaration] = "host code"
        used |= {word for declaration in kept for word in declaration.words()}
        reached = set(self._reached(used, [declaration for _, declaration in waiting]))
        for file, declaration in waiting:
            if declaration not in reached:
                file.blanked[declaration] = "host code"
        for file in self.files:
            for declaration in file.declared:
                if (
                    declaration not in file.blanked
                    and declaration.kind is Kind.TYPE
                    and self.is_host(declaration)
                ):
                    self._judge_members(file, declaration)

    def _judge_members(self, file: SourceFile, declaration: Declaration) -> None:
        """Leave out the host functions of a class that device code uses."""
        for member in members(declaration):
            if member.kind is Kind.FUNCTION and not self.is_device(member) and self.is_host(member):
                file.blanked[member] = "host code"

    def _stays(self, declaration: Declaration) -> bool:
        """Whether it is device code by itself, whatever else there is."""
        if declaration.kind is Kind.MACRO_CALL:
            known = self.macros.get(declaration.tokens[0].text)
            return known is not None and (self.is_device(declaration) or not self.is_host(declaration))
        if self.is_device(declaration):
            return True
        if declaration.kind in _CONSTANT and declaration.head_words().isdisjoint(_CONSTANT[declaration.kind]):
            return False
        return not self.is_host(declaration)

    def _may_stay(self, declaration: Declaration) -> bool:
        """Whether it stays if device code names it: not what says or shows that it is for the host."""
        if declaration.kind is Kind.TYPE or declaration.kind is Kind.ALIAS:
            return True
        if declaration.is_instantiation and declaration.names.isdisjoint(self.device_templates):
            return False
        words = declaration.head_words()
        if declaration.kind is Kind.FUNCTION and not declaration.names.isdisjoint(
            self.device_names - {"operator"}
        ):
            return False  # a second one of that name, for the host
        if (
            "main" in declaration.names
            or "__host__" in words
            or declaration.kind in (Kind.MACRO_CALL, Kind.USING)
        ):
            return False
        return not self.is_host(declaration)

    def needed(self) -> set[Declaration]:
        """The kernels and what declares the names that they use: what the compiler says of these is told."""
        everything = [
            declaration
            for file in self.files
            for declaration in file.declared
            if declaration not in file.blanked
        ]
        needed = {declaration for declaration in everything if self.is_kernel(declaration)}
        needed |= {declaration for declaration in everything if not declaration.names.isdisjoint(self.wanted)}
        used = {word for declaration in needed for word in declaration.words()}
        rest = [
            declaration
            for declaration in everything
            if declaration not in needed
            and (self.is_device(declaration) or self._is_type_or_constant(declaration))
        ]
        return needed | set(self._reached(used, rest))

    def _reached(self, words: set[str], waiting: Sequence[Declaration]) -> list[Declaration]:
        """The declarations whose names are among some words, in macros that these name, or in one another."""
        reached: list[Declaration] = []
        used: set[str] = set()
        while words:
            used |= words | {word for name in words & self.macros.keys() for word in self.macros[name].words}
            named = [declaration for declaration in waiting if not declaration.names.isdisjoint(used)]
            waiting = [declaration for declaration in waiting if declaration.names.isdisjoint(used)]
            reached += named
            words = {word for declaration in named for word in declaration.words()} - used
        return reached

    def _is_type_or_constant(self, declaration: Declaration) -> bool:
        if declaration.kind is Kind.VARIABLE:
            return not declaration.head_words().isdisjoint(_CONSTANT[Kind.VARIABLE])
        return declaration.kind is not Kind.FUNCTION

    def _expanded(self, declaration: Declaration) -> frozenset[str]:
        """The words of the macros that the head of a declaration uses."""
        names = used_by(declaration.head_words() & self.macros.keys(), self.macros)
        return frozenset(word for name in names for word in self.macros[name].words)

    def _refuse_launches(self) -> None:
        """Leave out device functions that launch kernels, and those that call them, and say why."""
        functions = [
            (file, declaration)
            for file in self.files
            for declaration in file.declared
            if declaration.kind is Kind.FUNCTION
        ]
        for file, declaration in functions:
            if not self.is_device(declaration) or "__host__" in declaration.head_words():
                continue
            at = launch_in(declaration.tokens)
            starts = next((token for token in declaration.tokens if _STARTS_WORK.fullmatch(token.text)), None)
            token = declaration.tokens[at] if at is not None else starts
            if token is None:
                continue
            line = file.lines.at(token.start)
            if file.is_conditional(declaration, token) and (file.name, line) not in self.complaints:
                self.guarded.add((file.name, line))
                continue
            what = "launches a kernel" if at is not None else f"calls {token.text}"
            for name in declaration.names:
                self.refused[name] = (
                    f"{name} {what} on the device ({file.name}:{line}): dynamic parallelism, device "
                    "graphs and the rest of the device's runtime are not run here"
                )
            file.blanked[declaration] = "dynamic parallelism"
        growing = bool(self.refused)
        while growing:
            growing = False
            for file, declaration in functions:
                if declaration in file.blanked or not self.is_device(declaration):
                    continue
                called = declaration.words() & self.refused.keys() - declaration.names
                if called and declaration.has_body:
                    because = self.refused[min(called)]
                    self.refused |= {
                        name: f"{name} calls {min(called)}; {because}" for name in declaration.names
                    }
                    file.blanked[declaration] = "dynamic parallelism"
                    growing = True
        for file, declaration in functions:
            if not declaration.has_body and declaration.names & self.refused.keys():
                file.blanked.setdefault(declaration, "dynamic parallelism")
