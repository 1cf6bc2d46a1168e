"""CUTLASS's Ampere and Hopper examples in CuTe DSL on a virtual GPU, with their own reference checks.

    git clone https://github.com/NVIDIA/cutlass
    python benchmarks/cute_dsl_examples.py cutlass/examples/python/CuTeDSL [--only hopper] [--save FILE]

Each runs unchanged in a process of its own, with sizes that a CPU computes in seconds.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from limited_process import run_limited

SOURCE = Path(__file__).parents[1] / "src"
ONCE = "--warmup_iterations 0 --iterations 1"
#: Examples, and their arguments.
EXAMPLES = {
    "cute/ampere/kernel/elementwise/elementwise_add.py": f"--M 256 --N 256 {ONCE}",
    "cute/ampere/kernel/elementwise/elementwise_apply.py": f"--M 256 --N 256 {ONCE}",
    "cute/ampere/tutorial/elementwise_add_autotune.py": f"--M 256 --N 256 {ONCE}",
    "cute/ampere/kernel/dense_gemm/sgemm.py": f"--mnk 256,128,64 {ONCE}",
    "cute/ampere/kernel/dense_gemm/tensorop_gemm.py": f"--mnkl 256,256,128,1 {ONCE}",
    "cute/ampere/kernel/attention/flash_attention_v2.py": "--batch_size 1 --seqlen_q 256 --seqlen_k 256 "
    f"--num_head 2 --head_dim 64 {ONCE}",
    "cute/ampere/kernel/attention/hstu_attention.py": "--batch_size 1 --seqlen_q 128 --seqlen_kv 128 "
    "--num_head 1 --head_dim 64",
    "cute/hopper/kernel/dense_gemm/dense_gemm.py": f"--mnkl 256,256,128,1 {ONCE}",
    "cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py": f"--mnkl 256,256,128,1 {ONCE}",
    "cute/hopper/kernel/dense_gemm/dense_gemm_fp8_2xacc.py": f"--mnkl 256,256,128,1 {ONCE}",
    "cute/hopper/kernel/dense_gemm/dense_gemm_fp8_gelu_persistent.py": f"--mnkl 256,256,128,1 {ONCE}",
    "cute/hopper/kernel/grouped_gemm/grouped_gemm.py": "--num_groups 2 --problem_sizes_mnkl "
    f"(128,128,128,1),(128,256,128,1) --tile_shape_mn 128,64 --cluster_shape_mn 1,1 {ONCE}",
    "cute/hopper/kernel/cta_norm/cta_norm.py": f"--M 64 --N 1024 {ONCE}",
    "cute/hopper/kernel/attention/fmha.py": f"--q_shape 1,128,1,128 --k_shape 1,128,1,128 {ONCE}",
}


def main() -> None:
    """Run the examples, print a line for each, and save the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="examples/python/CuTeDSL of a checkout of CUTLASS")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--seconds", type=float, default=900, help="limit of an example")
    parser.add_argument("--save", type=Path, help="a JSON file")
    asked = parser.parse_args()
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    rows = []
    for name, arguments in EXAMPLES.items():
        if asked.only not in name:
            continue
        words = [sys.executable, "-X", "faulthandler", "-m", "lanewise", "run", "--gpu", asked.gpu, name]
        words += ["--", *arguments.split()]
        status, output = run_limited(words, asked.folder, asked.seconds, {**os.environ, "PYTHONPATH": path})
        why = "" if status == 0 else "\n".join(output.splitlines()[-6:])
        rows.append({"example": name, "status": status, "passed": status == 0, "why_not": why})
        print(json.dumps(rows[-1]), flush=True)
    print(f"{sum(row['status'] == 0 for row in rows)} of {len(rows)} passed")
    if asked.save:
        asked.save.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
