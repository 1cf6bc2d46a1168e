"""Applies the mends that findings propose to the wrong kernels of the corpus, and looks what is left.

`cd tests; python -m machine.mistakes.mending` tries every kernel whose findings propose a barrier or a fence
between lines, and prints what became of them. Words on the command line pick pairs by name, cause or file.
"""

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import lanewise as lw
from machine.mistakes.corpus import (
    PAIRS,
    STEPS,
    Pair,
    accusations,
    arch_of,
    options_of,
    version,
    with_kernels,
)

#: What is written into CUDA C++ for an instruction that a mend names.
STATEMENTS = {
    "__syncthreads()": "__syncthreads();",
    "__syncwarp()": "__syncwarp();",
    "__syncwarp(mask)": "__syncwarp(__activemask());",
    "cluster.sync()": 'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");',
    "fence.proxy.async": 'asm volatile("fence.proxy.async;" ::: "memory");',
    "fence.mbarrier_init": 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");',
    "wgmma.fence": 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");',
    "cp.async.wait_all": 'asm volatile("cp.async.wait_all;" ::: "memory");',
}
#: How far behind a line a statement may stand that comes "after" it, and how many choices are tried.
_AFTER, _MOST_TRIES = 8, 200
_STATEMENT = re.compile(r"`([^`]+)` (?=between|after|before)")
_THEN = re.compile(r", then `(__sync\w+\(\))`")
_GAP = re.compile(
    r"(between|after|before) line (\d+)(?: and (?:before )?line (\d+))?(?:, before (?:it|line (\d+)) comes)?"
)

#: Of mends of a barrier that stands at the wrong place.
_COMES_BY = re.compile("come to (the barrier|it)|execute it")

Insertion = tuple[str, tuple[int, ...]]


def insertions(mend: str) -> list[Insertion]:
    """Return the statements that a mend adds, each with the lines before which it may stand.

    There are none if the mend is not of this form.
    """
    named = _STATEMENT.match(mend)
    if named is None or named[1] not in STATEMENTS:
        return []
    name = "__syncwarp(mask)" if "with a mask" in mend else named[1]
    added = []
    for where, line, end, again in _GAP.findall(mend.split("; or ")[0]):
        first = int(line) + (where != "before")
        last = int(end) if end else first + (_AFTER if where == "after" else 0)
        places = [*range(first, last + 1), *(range(int(again) - 2, int(again) + 1) if again else ())]
        second = _THEN.search(mend)
        statements = [STATEMENTS[name], *([STATEMENTS[second[1]]] if second else [])]
        added.append((" ".join(statements), tuple(places)))
    return added


def mended_texts(pair: Pair, added: list[Insertion]) -> Iterator[str]:
    """Yield the source of a wrong kernel with statements added, at each of the lines that are allowed."""
    lines = with_kernels(version(pair.file, wrong=True), frozenset([pair.name])).split("\n")
    choices = sorted(itertools.product(*(gap for _, gap in added)), key=lambda places: len(set(places)))
    for places in choices[:_MOST_TRIES]:  # one place for all of them first
        text = list(lines)
        for place, (statement, _) in zip(places, added, strict=True):
            if place <= len(text):
                text[place - 1] = f"{statement} {text[place - 1]}"
        yield "\n".join(text)


def check(pair: Pair, text: str) -> Any:
    """Check a version of a kernel."""
    module = lw.cuda(text, arch=arch_of(pair.file), options=options_of(pair.file))
    launch: Any = (pair.grid, pair.block, pair.shared) if pair.shared else (pair.grid, pair.block)
    return lw.check(module[pair.name][launch], *pair.make_arguments(), steps=STEPS, cluster=pair.cluster)


def is_mended(pair: Pair, mends: Iterable[str]) -> bool:
    """Return whether mends, at lines that they allow, leave nothing to accuse the kernel of.

    Another mistake may be left which no statement mends, as when two threads write one element.
    """
    added = list(dict.fromkeys(each for mend in mends for each in insertions(mend)))
    for text in mended_texts(pair, added):
        try:
            report = check(pair, text)
        except lw.LanewiseError:  # a statement in the middle of another one
            continue
        left = [finding.mend for finding in accusations(report)]
        if not any(insertions(mend) or _COMES_BY.search(mend) for mend in left):
            return True
    return False


def main() -> None:
    """Try all pairs, and print what each mend came to."""
    words = sys.argv[1:]
    counts = {True: 0, False: 0}
    for pair in PAIRS:
        chosen = not words or any(word in (pair.name, pair.cause) or word in pair.file for word in words)
        if not chosen or not pair.kinds or not pair.file.endswith(".cu"):
            continue
        found = accusations(pair.check(wrong=True))
        mends = [finding.mend for finding in found]
        shown = [f"{each.kind}: {each.mend or 'NO MEND: ' + each.message}" for each in found]
        if not all(insertions(mend) for mend in mends) or not mends:
            print(pair.name, *shown, sep="\n    ", flush=True)
            continue
        mended = is_mended(pair, mends)
        counts[mended] += 1
        print(f"{'mended' if mended else 'STILL WRONG'} {pair.name}", *shown, sep="\n    ", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
