"""`lw.virtual_gpu` as a context manager: launches, findings, what is put back at its end."""

import ctypes
import sys
import threading
from pathlib import Path

import pytest

import lanewise as lw
from lanewise.machine.runtime.address_book import ADDRESSES
from lanewise.virtual_gpu import VirtualGPU
from lanewise.virtual_gpu.frameworks.patches import Patches, when_imported
from lanewise.virtual_gpu.session import active
from virtual_gpu.programs import WRITE


def launch(gpu: VirtualGPU, stride: int, place: int, threads: int = 32) -> None:
    function = gpu.driver.cuModuleGetFunction(gpu.driver.load(WRITE), "write")
    values = ctypes.c_uint64(place), ctypes.c_uint32(stride)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in values))
    gpu.driver.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, 0, ctypes.addressof(pointers), 0)


def test_launches_are_recorded_and_findings_are_told_once_for_each_kernel(tmp_path: Path) -> None:
    with lw.virtual_gpu("A100", check=True) as gpu:
        place = gpu.driver.cuMemAlloc_v2(128)
        launch(gpu, 4, place)
        assert gpu.findings == []
        for _ in range(3):
            launch(gpu, 0, place)
    assert [(each.kernel, each.grid, each.block) for each in gpu.launches] == [
        ("write", (1, 1, 1), (32, 1, 1))
    ] * 4
    assert [each.kind for each in gpu.findings] == ["race"]
    gpu.save(tmp_path / "report.json")
    assert (tmp_path / "report.json").stat().st_size > 100


def test_findings_of_launches_that_were_not_checked_are_not_none() -> None:
    with lw.virtual_gpu("A100") as gpu:
        launch(gpu, 0, gpu.driver.cuMemAlloc_v2(128))
    assert len(gpu.launches) == 1
    with pytest.raises(lw.LanewiseError, match="check=True"):
        gpu.findings  # noqa: B018  # reading it is what raises


def test_watchers_of_launches_see_those_of_the_virtual_gpu() -> None:
    from lanewise.launch import Configured, watched

    seen: list[str] = []

    def watcher(configured: Configured, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        seen.append(f"{configured.entry.name} {options['arch']}")

    with lw.virtual_gpu("H100") as gpu, watched(watcher):
        launch(gpu, 4, gpu.driver.cuMemAlloc_v2(128))
    assert seen == ["write sm_90a"]


def test_an_endless_kernel_ends_after_its_steps() -> None:
    with lw.virtual_gpu("A100", steps=1000) as gpu:
        function = gpu.driver.cuModuleGetFunction(gpu.driver.load(WRITE), "endless")
        with pytest.raises(lw.LanewiseError, match="LAUNCH_TIMEOUT"):
            gpu.driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0)


def test_one_virtual_gpu_at_a_time_and_none_afterwards() -> None:
    with lw.virtual_gpu("A100") as gpu:
        assert active() is gpu
        with (
            pytest.raises(lw.LanewiseError, match="a virtual A100 is in use already"),
            lw.virtual_gpu("H100"),
        ):
            pass
        assert active() is gpu
    assert active() is None


def test_memory_at_the_end_of_the_context_is_out_of_reach() -> None:
    with lw.virtual_gpu("A100") as gpu:
        place = gpu.driver.cuMemAlloc_v2(128)
        kept = gpu.driver.memory.rest(place)
        assert kept is not None
        living = len(ADDRESSES.living())
    assert gpu.driver.memory.find(place) is None
    assert len(ADDRESSES.living()) == living - 1  # although an array of it is kept


def test_arguments_are_named_by_their_number_in_messages() -> None:
    with lw.virtual_gpu("A100") as gpu, pytest.raises(lw.LanewiseError, match=r"past the end of argument 0"):
        launch(gpu, 4, gpu.driver.cuMemAlloc_v2(64))


def test_a_package_is_seen_when_it_is_imported_and_not_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lanewise_seen", "lanewise_unseen"):
        (tmp_path / f"{name}.py").write_text("value = 3\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    calls: list[int] = []

    def seen() -> None:
        calls.append(sys.modules["lanewise_seen"].value)

    with when_imported("lanewise_seen", seen), when_imported("lanewise_unseen", lambda: calls.append(-1)):
        import lanewise_seen  # type: ignore[import-not-found]  # noqa: F401  # a module that the test writes
    import lanewise_unseen  # type: ignore[import-not-found]  # noqa: F401  # a module that the test writes

    assert calls == [3]
    with when_imported("lanewise_seen", seen):
        assert calls == [3, 3]


def test_patches_are_put_back_in_reverse_order_and_new_names_are_removed() -> None:
    class Library:
        answer = 1

    with Patches() as patches:
        patches.set(Library, "answer", 2)
        patches.set(Library, "answer", 3)
        patches.set(Library, "new", 4)
        assert (Library.answer, Library.new) == (3, 4)  # type: ignore[attr-defined]  # put there by the program
    assert Library.answer == 1
    assert not hasattr(Library, "new")


def test_threads_have_contexts_of_their_own() -> None:
    with lw.virtual_gpu("A100") as gpu:
        gpu.driver.cuCtxSetCurrent(gpu.driver.cuDevicePrimaryCtxRetain(0))
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(gpu.driver.cuCtxGetCurrent()))
        thread.start()
        thread.join()
    assert seen == [0]
