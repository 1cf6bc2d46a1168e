"""A program runs in a child process, so that a crash of its host code ends in a sentence and a status."""

import ctypes
import os
import signal
import sys

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
