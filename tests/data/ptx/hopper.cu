// Hopper: clusters, launch limits, mbarriers with labels in blocks, bulk tensor copies and wgmma in inline assembly.
#include <cstdint>

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128, 2)
pipeline(const __grid_constant__ ulonglong2 map[8], float* out) {
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ uint64_t barrier;
  uint32_t bar = __cvta_generic_to_shared(&barrier), dst = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(1));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(8192));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(dst), "l"(&map), "r"(bar), "r"(0), "r"(int(blockIdx.x * 64)) : "memory");
  }
  __syncthreads();
  for (int phase = 0; phase < 2; ++phase)
    asm volatile("{\n\t.reg .pred P1;\n\tLAB_WAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n\t"
                 "@P1 bra DONE;\n\tbra LAB_WAIT;\n\tDONE:\n\t}" ::"r"(bar), "r"(phase) : "memory");
  float d[4] = {};
  uint64_t desc = (uint64_t(dst) >> 4 & 0x3fff) | uint64_t(1) << 62;
  asm volatile("wgmma.fence.sync.aligned;\n");
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc), "l"(desc + 2), "r"(1));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n");
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(dst), "r"(__float_as_uint(d[0])));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
