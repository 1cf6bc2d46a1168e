"""Ctrl-C that is heard also while a compiler works: Python hears it between two of its own steps only."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds that an orderly end may take after Ctrl-C.
GRACE = 0.8


@contextmanager
def ends_soon(status: int = 130) -> Iterator[None]:
    """Within it, Ctrl-C ends the process in `GRACE` seconds, if it has not ended in good order before.

    >>> with ends_soon():
    ...     pass
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, sender = socket.socketpair()
    sender.setblocking(False)
    over = threading.Event()

    def listen() -> None:
        while signals := heard.recv(64):
            if signal.SIGINT in signals and not over.wait(GRACE):
                print("lanewise: interrupted", file=sys.stderr, flush=True)
                os._exit(status)

    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=listen, daemon=True, name="lanewise-interrupt")
    listener.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        sender.close()
        listener.join()
        heard.close()
