//@arch sm_100a
// Cluster launch control: running blocks take over others, whose numbers come as answers to requests.
#include "products.cuh"
#define ANSWERS(n)                                     \
    __shared__ __align__(16) uint4 answer[n];          \
    __shared__ u64 bar[n];                             \
    if (T == 0) {                                      \
        for (int i = 0; i < n; i++) init(bar[i], 1);   \
        fence_init();                                  \
    }                                                  \
    __syncthreads();                                   \
    int x = blockIdx.x, y = 0;
#define ASK(i)                       \
    arrive_expect(bar[i], 16);       \
    try_cancel(answer[i], bar[i]);
#define CLUSTER asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");

//@ launch control | asynchronous copy/uninitialised | 6, 64 | i32[6]=0 | the answer is read before it is complete
extern "C" __global__ void answer_not_waited_for(int* tiles) {
    ANSWERS(1)
    for (int t = 0;; t++) {
        if (T == 0) {
            atomicAdd(&tiles[x], 1);
            ASK(0)  //!
        }
        __syncthreads();
        wait(bar[0], t & 1);  //+
        if (!canceled(answer[0], x, y)) break;  //!
        fence_async_shared();
        wait(bar[0], t & 1);
        __syncthreads();
    }
    wait(bar[0], 0);  //-
}

//@ launch control | asynchronous copy/uninitialised/barrier | 6, 64 | i32[6]=0 | the wait is for the other parity, which returns at once
extern "C" __global__ void answer_wrong_parity(int* tiles) {
    ANSWERS(1)
    for (int t = 0;; t++) {
        if (T == 0) {
            atomicAdd(&tiles[x], 1);
            ASK(0)  //!
        }
        __syncthreads();
        wait(bar[0], t + 1 & 1);  //-!
        wait(bar[0], t & 1);  //+
        if (!canceled(answer[0], x, y)) break;  //!
        fence_async_shared();
        __syncthreads();
    }
}

//@ launch control | asynchronous copy/uninitialised | 6, 64 | i32[6]=0 | one warp waits for the answer, and the other one reads it at once
extern "C" __global__ void answer_awaited_by_one_warp(int* tiles) {
    ANSWERS(1)
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        ASK(0)  //!
    }
    if (WARP == 0) wait(bar[0], 0);
    __syncthreads();  //+
    if (canceled(answer[0], x, y) && T == 32) atomicAdd(&tiles[x], 1);  //!
    wait(bar[0], 0);
}

//@ launch control | asynchronous copy/race/mbarrier | 6, 64 | i32[6]=0 | a second request writes to the same 16 bytes while the first is under way
extern "C" __global__ void answer_asked_for_twice(int* tiles) {
    ANSWERS(2)
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        arrive_expect(bar[0], 16);
        try_cancel(answer[0], bar[0]);  //!
        arrive_expect(bar[1], 16);
        try_cancel(answer[0], bar[1]);  //-!
        try_cancel(answer[1], bar[1]);  //+
    }
    __syncthreads();
    wait(bar[0], 0);
    wait(bar[1], 0);
    if (canceled(answer[0], x, y) && T == 0) atomicAdd(&tiles[x], 1);
    if (canceled(answer[1], x, y) && T == 0) atomicAdd(&tiles[x], 1);  //+
}

//@ launch control | race | 6, 64 | i32[6]=0 | the next request may overwrite the answer before the other warp has read it
extern "C" __global__ void answer_overwritten_unread(int* tiles) {
    ANSWERS(1)
    for (int t = 0;; t++) {
        if (T == 0) {
            atomicAdd(&tiles[x], 1);
            arrive_expect(bar[0], 16);
            try_cancel(answer[0], bar[0]);  //!
        }
        wait(bar[0], t & 1);
        bool goes_on = canceled(answer[0], x, y);  //!
        fence_async_shared();
        __syncthreads();  //+
        if (!goes_on) break;
    }
}

//@ launch control | advice proxy | 6, 64 | i32[6]=0 | the answer is read, and no fence orders the read before the asynchronous proxy writes the next one
extern "C" __global__ void answer_not_fenced(int* tiles) {
    ANSWERS(1)
    for (int t = 0;; t++) {
        if (T == 0) {
            atomicAdd(&tiles[x], 1);
            ASK(0)  //!
        }
        wait(bar[0], t & 1);
        if (!canceled(answer[0], x, y)) break;  //!
        fence_async_shared();  //+
        __syncthreads();
    }
}

//@ launch control | mbarrier/asynchronous copy/uninitialised | 6, 64 | i32[6]=0 | nothing tells the mbarrier to expect the 16 bytes of the answer
extern "C" __global__ void answer_not_expected(int* tiles) {
    ANSWERS(1)
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        arrive(bar[0]);  //-!
        arrive_expect(bar[0], 16);  //+
        try_cancel(answer[0], bar[0]);  //!
    }
    __syncthreads();
    wait(bar[0], 0);
    if (canceled(answer[0], x, y) && T == 0) atomicAdd(&tiles[x], 1);  //!
}

//@ launch control | mbarrier/barrier/deadlock | 6, 64 | i32[6]=0 | the mbarrier expects 32 bytes, and the answer has 16
extern "C" __global__ void answer_expected_too_large(int* tiles) {
    ANSWERS(1)
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        arrive_expect(bar[0], 32);  //-!
        arrive_expect(bar[0], 16);  //+
        try_cancel(answer[0], bar[0]);  //!
    }
    __syncthreads();
    wait(bar[0], 0);  //!
    if (canceled(answer[0], x, y) && T == 0) atomicAdd(&tiles[x], 1);
}

//@ launch control | uninitialised | 6, 64 | i32[6]=0 | the block is decoded of an answer that names none, and used
extern "C" __global__ void answer_decoded_without_asking(int* tiles) {
    ANSWERS(1)
    for (int t = 0; t < 8; t++) {
        if (T == 0) {
            atomicAdd(&tiles[x], 1);  //!
            ASK(0)
        }
        wait(bar[0], t & 1);
        bool goes_on = names_block(answer[0]);
        x = named(answer[0]);  //!
        fence_async_shared();
        __syncthreads();
        if (!goes_on) break;  //+
        if (!goes_on && x >= 6) break;  //-!
    }
}

//@ launch control | launch control | 6, 64 | i32[6]=0 | a block asks again after it has learnt that no block is left
extern "C" __global__ void asked_after_refusal(int* tiles) {
    ANSWERS(1)
    for (int t = 0; t < 8; t++) {
        if (T == 0) {
            ASK(0)  //!
        }
        wait(bar[0], t & 1);
        bool goes_on = canceled(answer[0], x, y);  //!
        fence_async_shared();
        __syncthreads();
        if (!goes_on) break;  //+
        if (T == 0 && goes_on) atomicAdd(&tiles[x], 1);
    }
}

//@ launch control | launch control | 6, 64 | i32[6]=0 | one warp asks again after the other one has told it that no block is left
extern "C" __global__ void asked_after_refusal_elsewhere(int* tiles) {
    __shared__ int left;
    ANSWERS(1)
    for (int t = 0; t < 8; t++) {
        if (T == 0) {
            ASK(0)  //!
        }
        if (WARP == 1) {
            wait(bar[0], t & 1);
            bool goes_on = canceled(answer[0], x, y);  //!
            if (LANE == 0) left = goes_on;
            if (LANE == 0 && goes_on) atomicAdd(&tiles[x], 1);
            fence_async_shared();
        }
        __syncthreads();
        int more = left;
        __syncthreads();
        if (!more) break;  //+
        if (more > 1) break;
    }
}

//@ launch control | mbarrier/barrier/asynchronous copy/race | 6, 64 | i32[6]=0 | all lanes of a warp ask: each takes a block over, and 31 of them are lost
extern "C" __global__ void asked_by_all_lanes(int* tiles) {
    ANSWERS(1)
    if (T == 0) atomicAdd(&tiles[x], 1), arrive_expect(bar[0], 16);
    __syncthreads();
    if (WARP == 0) try_cancel(answer[0], bar[0]);  //-!
    if (T == 0) try_cancel(answer[0], bar[0]);  //+
    __syncthreads();
    wait(bar[0], 0);  //!
    if (canceled(answer[0], x, y) && T == 0) atomicAdd(&tiles[x], 1);
}

//@ launch control | asynchronous copy/mbarrier/race/cluster | 8, 64, cluster 2 | i32[8]=0 | both blocks of a cluster ask for all: two answers come to the same 16 bytes
extern "C" __global__ void asked_by_both_blocks(int* tiles) {
    ANSWERS(1)
    CLUSTER
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        arrive_expect(bar[0], 16);
    }
    CLUSTER
    if (T == 0) try_cancel_for_all(answer[0], bar[0]);  //-!
    if (T == 0 && cluster_rank() == 0) try_cancel_for_all(answer[0], bar[0]);  //+
    wait_cluster(bar[0], 0);
    if (canceled(answer[0], x, y) && T == 0) atomicAdd(&tiles[x + cluster_rank()], 1);  //!
    CLUSTER
}

//@ launch control | mbarrier/asynchronous copy/uninitialised | 8, 64, cluster 2 | i32[8]=0 | the answer comes to both blocks, and the second one's mbarrier expects nothing
extern "C" __global__ void answer_not_expected_by_partner(int* tiles) {
    ANSWERS(1)
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        if (cluster_rank() == 0) arrive_expect(bar[0], 16);  //-
        else arrive(bar[0]);  //-!
        arrive_expect(bar[0], 16);  //+
    }
    CLUSTER
    if (T == 0 && cluster_rank() == 0) try_cancel_for_all(answer[0], bar[0]);  //!
    wait_cluster(bar[0], 0);
    if (canceled(answer[0], x, y) && T == 0) atomicAdd(&tiles[x + cluster_rank()], 1);  //!
    CLUSTER
}

//@ launch control | asynchronous copy/race | 8, 64, cluster 2 | i32[8]=0 | the first block asks again while the second one may still read the last answer
extern "C" __global__ void answer_overwritten_at_partner(int* tiles) {
    ANSWERS(1)
    CLUSTER
    for (int t = 0;; t++) {
        if (T == 0) {
            atomicAdd(&tiles[x], 1);
            arrive_expect(bar[0], 16);
        }
        CLUSTER
        if (T == 0 && cluster_rank() == 0) try_cancel_for_all(answer[0], bar[0]);  //!
        wait_cluster(bar[0], t & 1);
        bool goes_on = canceled(answer[0], x, y);  //!
        x += cluster_rank();
        fence_async_shared();
        if (cluster_rank() == 0 && T == 0 && goes_on) try_cancel_for_all(answer[0], bar[0]);  //-!
        CLUSTER
        if (!goes_on) break;
    }
}

//@ launch control | - | 6, 64 | i32[6]=0 | a request is under way while the answer to the one before is read
extern "C" __global__ void two_requests_under_way(int* tiles) {
    ANSWERS(2)
    int told[2] = {0, 0};
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        ASK(0)
    }
    for (int t = 0;; t++) {
        int i = t % 2;
        wait(bar[i], t / 2 & 1);
        bool goes_on = canceled(answer[i], x, y);
        fence_async_shared();
        __syncthreads();
        if (!goes_on) break;
        if (T == 0) {
            atomicAdd(&tiles[x], 1);
            ASK(1 - i)
        }
        told[i]++;
    }
}

//@ launch control | out of bounds | 6, 64 | i32[6]=0 | the answer has 16 bytes, and the variable has 8
extern "C" __global__ void answer_too_large(int* tiles) {
    __shared__ __align__(16) u64 answer[1];  //-
    __shared__ __align__(16) u64 answer[2];  //+
    __shared__ u64 bar, other[2];
    if (T == 0) init(bar, 1), fence_init(), other[0] = 1;
    __syncthreads();
    int x = blockIdx.x, y = 0;
    if (T == 0) {
        atomicAdd(&tiles[x], 1);
        arrive_expect(bar, 16);
        try_cancel(reinterpret_cast<uint4&>(answer), bar);  //!
    }
    __syncthreads();
    wait(bar, 0);
    if (canceled(reinterpret_cast<uint4&>(answer), x, y) && T == 0) atomicAdd(&tiles[x], 1 + static_cast<int>(other[0] & 0));
}

//@ launch control | asynchronous copy | 2, 64 | i32[6]=0 | the mbarrier is given up while an answer is under way to it
extern "C" __global__ void inval_before_the_answer(int* tiles) {
    ANSWERS(1)
    if (T == 0) {
        atomicAdd(&tiles[x + y], 1);
        ASK(0)
        wait(bar[0], 0);  //+
        inval(bar[0]);  //!
    }
}

//@ launch control | launch control | 6, 64 | i32[6]=0 | the warp that asks learns last that no block is left, and asks once more
extern "C" __global__ void asked_after_both_were_refused(int* tiles) {
    ANSWERS(2)
    for (int t = 0; t < 8; t++) {
        if (T == 32) {
            ASK(t & 1)  //!
        }
        wait(bar[t & 1], t / 2 & 1);
        bool goes_on = canceled(answer[t & 1], x, y);  //!
        fence_async_shared();
        if (!goes_on) {
            if (T == 32) {  //-
                ASK(t + 1 & 1)  //-!
                wait(bar[t + 1 & 1], (t + 1) / 2 & 1);  //-
            }  //-
            break;
        }
        if (T == 0) atomicAdd(&tiles[x], 1);
        asm volatile("bar.sync 0;" ::: "memory");
    }
}
