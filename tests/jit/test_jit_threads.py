"""Tasks: jobs on threads of their own, one of which stays for the next."""

import gc
import threading
import time
import weakref
from functools import partial

import pytest

from lanewise.jit import threads


def ended(task: threads.Task) -> bool:
    """Wait for the end of a task, however long it takes."""
    while not task.wait(1.0):
        pass
    return True


def test_one_task_after_another_has_the_same_thread() -> None:
    """To start a thread takes as long as a short job."""
    seen: list[int] = []
    for _ in range(5):
        assert ended(threads.Task(lambda: seen.append(threading.get_ident())))
    assert len(seen) == 5
    assert len(set(seen)) == 1


def test_a_task_may_ask_for_a_new_thread() -> None:
    """The thread that waits for the next task goes on waiting."""
    seen: list[int] = []
    for new in (False, True, False):
        assert ended(threads.Task(lambda: seen.append(threading.get_ident()), in_new_thread=new))
    assert seen[0] == seen[2] != seen[1]


def test_tasks_run_beside_each_other() -> None:
    """Each may wait for all others: no task waits for a thread."""
    meeting = threading.Barrier(6)

    def meet() -> None:
        meeting.wait()

    tasks = [threads.Task(meet) for _ in range(6)]
    assert all(ended(task) for task in tasks)
    assert not meeting.broken


def test_to_wait_has_an_end() -> None:
    """A task that takes its time is waited for again."""
    go = threading.Event()

    def stay() -> None:
        go.wait()

    task = threads.Task(stay)
    assert not task.wait(0.01)
    go.set()
    assert ended(task)
    assert task.wait(0.0)


def test_a_job_is_not_kept_after_its_end() -> None:
    """What a launch holds is freed when it is over, although its thread stays."""

    class Large:
        def use(self) -> None:
            """Do nothing."""

    large = Large()
    kept = weakref.ref(large)
    task = threads.Task(large.use)
    del large
    assert ended(task)
    while kept() is not None:  # the thread lets go just after the end
        gc.collect()


def test_a_job_that_fails_ends_and_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends with the error; the next task has another."""
    told = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda error: told.set())

    def fail() -> None:
        raise ValueError("as intended")

    assert ended(threads.Task(fail))
    told.wait()
    done: list[int] = []
    assert ended(threads.Task(lambda: done.append(1)))
    assert done == [1]


def test_an_interrupt_ends_all_threads_before_it_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody begins another job, and nobody writes to the caller's memory any more."""
    monkeypatch.setattr(threads, "processors", lambda: 2)
    begun: list[int] = []
    under_way = threading.Event()
    busy: set[int] = set()

    def job(number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            under_way.wait()  # the other thread has a job, too
            raise KeyboardInterrupt
        begun.append(number)
        busy.add(number)
        under_way.set()
        time.sleep(0.02)
        busy.discard(number)

    jobs = [partial(job, number) for number in range(100_000)]  # which take half an hour
    with pytest.raises(KeyboardInterrupt):
        threads.run(jobs)
    assert not busy
    assert begun
    assert len(begun) < len(jobs) - 1
