"""Copies of columns of pixels (im2col) on the CPU machine: held against an H200 and a model in NumPy."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lanewise as lw
from everything import EVERYTHING, sampled
from im2col_cases import (
    Case,
    arguments,
    model,
    module,
    random_case,
    random_interleaved,
    run,
    sources,
)
from lanewise.errors import LanewiseError
from lanewise.isa.tensor_map import decode_im2col
from lanewise.machine.errors import KernelFault
from tensor_copy_cases import IMAGE, THREADS, digest

RECORD = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "results" / "h200_im2col_copies.json").read_text()
)
COPIES = [(Case.from_json(row[:-1]), row[-1]) for row in RECORD["copies"]]

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def result(case: Case, image: Any, memory: Any) -> Any:
    """Return what a copy writes: shared memory, or that of the tensor."""
    return image if case.verb == "load" else memory


def test_copies_leave_the_bytes_that_an_h200_left(everything: bool) -> None:
    chosen = COPIES if everything else COPIES[:: 8 if EVERYTHING else 32]
    wrong = [case for case, seen in chosen if digest(result(case, *run(case))) != seen]
    assert len(chosen) > (75 if EVERYTHING else 35) and not wrong


def test_the_model_says_what_an_h200_does(everything: bool) -> None:
    chosen = COPIES if everything else COPIES[3::8]
    assert not [case for case, seen in chosen if digest(result(case, *model(case))) != seen]


def test_what_stops_an_h200_stops_the_machine_with_its_line() -> None:
    for row, _ in RECORD["stopped"]:
        with pytest.raises(KernelFault, match=r"(?s)line \d+: cp\..*by thread") as raised:
            run(Case.from_json(row))
        assert raised.value.line


@sampled(6)
@pytest.mark.parametrize("seed", range(40))
def test_random_columns(seed: int) -> None:
    """As the model has them, under any schedule, and a check finds nothing."""
    chance = random.Random(seed)
    make = random_interleaved if seed % 3 == 2 else random_case
    case = make(chance, chance.choice(["load", "load", "store"]))
    found = run(case, schedule=chance.choice(["early", "late", seed]))
    assert all(map(np.array_equal, found, model(case))), case
    if seed % 8 == 0:
        memory, image = sources(case)
        encoded = np.frombuffer(case.tensor().encode(int(lw.address(memory))), np.uint8)
        configured = module(case)["copy"][1, THREADS, IMAGE]
        assert lw.check(configured, *arguments(case, encoded, image)).ok
        assert np.array_equal(result(case, image, memory), result(case, *model(case))), case


CASE = Case(
    "load", 1, (32, 7, 5, 2), (64, 448, 2240), (-1, -1), (-1, -1), 16, 20, (1,) * 4, 0, 0, 0, (0, -1, -1, 0),
    (1, 1), 0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"coordinates": (0, 6, -1, 0)}, "first pixel lies outside of the bounding box.*coordinate is 6"),
        ({"coordinates": (0, -1, -2, 0)}, "first pixel lies outside of the bounding box.*coordinate is -2"),
        ({"coordinates": (3, -1, -1, 0)}, "innermost coordinate is 6 bytes from the start"),
        ({"offsets": (256, 0)}, "the offset 256 is too large"),
        ({"where": 64}, "is not a multiple of 128"),
        ({"verb": "store", "coordinates": (0, 0, 0, 0)}, "reaches beyond the tensor, to -1"),
        ({"verb": "store", "coordinates": (0, -1, 0, 0)}, "the coordinate -1 is negative"),
    ],
)
def test_mistakes_have_sentences(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelFault, match=f"(?s)cp.async.bulk.tensor.4d.*{says}"):
        run(CASE._replace(**changes))


def test_the_other_mode_and_another_rank() -> None:
    memory = np.zeros(1 << 16, np.uint8)
    tiled = lw.encode_tiled("u16", lw.address(memory), (32, 7, 5, 2), (64, 448, 2240), (16, 1, 1, 1))
    for raw, says in (
        (tiled, "not that of a tensor map of the mode .im2col"),
        (CASE._replace(
            dims=(32, 7, 2), strides=(64, 448), lower=(-1,), upper=(-1,), element_strides=(1,) * 3
        ).tensor().encode(lw.address(memory)), "the tensor map has 3 dimensions"),
    ):  # fmt: skip
        with pytest.raises(KernelFault, match=f"(?s){says}"):
            module(CASE)["copy"][1, THREADS, IMAGE](*arguments(CASE, raw, np.zeros(IMAGE, np.uint8)))


def test_an_array_on_the_host_and_what_lies_behind_it() -> None:
    """A map made of an array is the same; bytes behind the array are out of bounds."""
    images = np.arange(2 * 5 * 7 * 32, dtype=np.uint16).reshape(2, 5, 7, 32)
    tensor_map = lw.tensor_map(images, (20, 16), im2col=((-1, -1), (-1, -1)))
    assert tensor_map.box == (20, 16) and tensor_map.box_bytes == 640 and tensor_map.shape == images.shape
    assert decode_im2col(bytes(tensor_map)) == (lw.address(images), CASE.tensor())
    out = np.zeros(IMAGE, np.uint8)
    module(CASE)["copy"][1, THREADS, IMAGE](*arguments(CASE, tensor_map, out))
    found = out.view(np.uint16)[: 20 * 16].reshape(20, 16)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    # 5 × 3 positions of a filter of 3 × 3, of which the offsets are those of its middle
    expected = [padded[n, h + 1, w + 1, :16] for n in range(2) for h in range(5) for w in range(7)][:20]
    assert np.array_equal(found, np.array(expected))
    beyond = lw.encode_im2col(
        "u16", lw.address(images), (32, 7, 5, 3), (64, 448, 2240), (-1, -1), (-1, -1), 16, 20
    )
    last = arguments(CASE._replace(coordinates=(0, -1, -1, 2)), beyond, out)
    with pytest.raises(KernelFault, match="out of bounds"):
        module(CASE)["copy"][1, THREADS, IMAGE](*last)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
         "[%r1], [%rd1, {0, 0}], [%r1], {1};", "im2col takes tensors of 3 to 5 dimensions"),
        ("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
         "[%r1], [%rd1, {0, 0, 0, 0}], [%r1], {1};", "1 offsets for 2 dimensions of pixels"),
        ("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
         "[%r1], [%rd1, {0, 0, 0, 0}], [%r1];", "0 offsets for 2 dimensions of pixels"),
        ("cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes "
         "[%r1], [%rd1, {0, 0, 0}], [%r1], {1, 2};", "needs sm_100"),
    ],
)  # fmt: skip
def test_forms_that_are_not_run(form: str, says: str) -> None:
    text = f"{HEAD}.visible .entry k() {{ .reg .b32 %r<4>; .reg .b64 %rd<4>; {form} ret; }}"
    with pytest.raises(LanewiseError, match=says):
        lw.load(text)["k"][1, 1]()
