"""The limits of a process that runs Python which was typed on the page: processor time, memory, files.

They keep a script that never ends, or that fills the memory, from taking the machine with it. They are not a
jail: the script is the user's own, and may do what the user may.
"""

import importlib.util
import os
import sys
import threading
import time

from lanewise.explore.time_limits import seconds

#: Seconds of processor time, bytes of memory, and bytes of a file that such a process may use.
CPU_SECONDS, MEMORY_BYTES, FILE_BYTES = seconds(60.0), 4 << 30, 256 << 20
#: Seconds between two looks at the memory where the system itself does not bound it.
_LOOK_SECONDS = 0.05


def can_limit() -> bool:
    """Whether Python can bound the memory and the time of a process here; on Windows it cannot."""
    return importlib.util.find_spec("resource") is not None


def limit_process(cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
    """Bound the process that calls this, and those that it starts, for the rest of their lives."""
    import resource

    def bound(kind: int, value: int) -> None:
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    bound(resource.RLIMIT_CPU, int(min(cpu_seconds, 1 << 30)))
    bound(resource.RLIMIT_FSIZE, FILE_BYTES)
    bound(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        bound(resource.RLIMIT_AS, memory_bytes)
    else:  # macOS takes the limit and does not keep it
        threading.Thread(target=_watch_memory, args=(memory_bytes,), daemon=True).start()


def _watch_memory(most: int) -> None:
    """End the process when it holds more memory than it may."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < most:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
