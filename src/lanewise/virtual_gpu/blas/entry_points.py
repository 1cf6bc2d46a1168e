"""The entry points of cuBLAS and cuBLASLt, declared as those of the driver are (`driver/entry_points.py`)."""

from functools import cache

from lanewise.virtual_gpu.driver.entry_points import EntryPoint, declared_in

#: The types of numbers that the letter in a name stands for: float, double, half.
LETTERS = {"S": "f32", "D": "f64", "H": "f16"}
_SIZES = "handle blas, i32 transpose_a, i32 transpose_b, i32 m, i32 n, i32 k, pointer alpha"

_DECLARATIONS = f"""
cublasCreate_v2(out handle blas)
cublasDestroy_v2(handle blas)
cublasGetVersion_v2(handle blas, out i32 version)
cublasSetStream_v2(handle blas, handle stream)
cublasGetStream_v2(handle blas, out handle stream)
cublasSetWorkspace_v2(handle blas, pointer memory, u64 bytes)
cublasSetMathMode(handle blas, i32 mode)
cublasGetMathMode(handle blas, out i32 mode)
cublasSetPointerMode_v2(handle blas, i32 mode)
cublasGetPointerMode_v2(handle blas, out i32 mode)
cublasSetAtomicsMode(handle blas, i32 mode)
cublasGetAtomicsMode(handle blas, out i32 mode)
cublasGetStatusName(i32 status)
cublasGetStatusString(i32 status)
cublasSetVector(i32 count, i32 bytes, u64 source, i32 source_step, u64 target, i32 target_step)
cublasGetVector(i32 count, i32 bytes, u64 source, i32 source_step, u64 target, i32 target_step)
cublasSetMatrix(i32 rows, i32 columns, i32 bytes, u64 source, i32 source_leading, u64 target, \
i32 target_leading)
cublasGetMatrix(i32 rows, i32 columns, i32 bytes, u64 source, i32 source_leading, u64 target, \
i32 target_leading)
cublasSgemmEx({_SIZES}, u64 a, i32 type_a, i32 lda, u64 b, i32 type_b, i32 ldb, pointer beta, u64 c, \
i32 type_c, i32 ldc)
cublasGemmEx({_SIZES}, u64 a, i32 type_a, i32 lda, u64 b, i32 type_b, i32 ldb, pointer beta, u64 c, \
i32 type_c, i32 ldc, i32 compute, i32 algorithm)
cublasGemmBatchedEx({_SIZES}, pointer a, i32 type_a, i32 lda, pointer b, i32 type_b, i32 ldb, pointer beta, \
pointer c, i32 type_c, i32 ldc, i32 count, i32 compute, i32 algorithm)
cublasGemmStridedBatchedEx({_SIZES}, u64 a, i32 type_a, i32 lda, u64 stride_a, u64 b, i32 type_b, i32 ldb, \
u64 stride_b, pointer beta, u64 c, i32 type_c, i32 ldc, u64 stride_c, i32 count, i32 compute, i32 algorithm)

cublasLtCreate(out handle blas)
cublasLtDestroy(handle blas)
cublasLtGetVersion()
cublasLtGetStatusName(i32 status)
cublasLtGetStatusString(i32 status)
cublasLtMatmulDescCreate(out handle product, i32 compute, i32 scale_type)
cublasLtMatmulDescDestroy(handle product)
cublasLtMatmulDescSetAttribute(handle product, i32 attribute, pointer value, u64 bytes)
cublasLtMatrixLayoutCreate(out handle layout, i32 type, u64 rows, u64 columns, u64 leading)
cublasLtMatrixLayoutDestroy(handle layout)
cublasLtMatrixLayoutSetAttribute(handle layout, i32 attribute, pointer value, u64 bytes)
cublasLtMatmulPreferenceCreate(out handle preference)
cublasLtMatmulPreferenceDestroy(handle preference)
cublasLtMatmulPreferenceSetAttribute(handle preference, i32 attribute, pointer value, u64 bytes)
cublasLtMatmulAlgoGetHeuristic(handle blas, handle product, handle a, handle b, handle c, handle d, \
handle preference, i32 asked, pointer results, out i32 count)
cublasLtMatmul(handle blas, handle product, pointer alpha, u64 a, handle layout_a, u64 b, handle layout_b, \
pointer beta, u64 c, handle layout_c, u64 d, handle layout_d, pointer algorithm, u64 workspace, \
u64 workspace_bytes, handle stream)
"""

_OF_EACH_TYPE = f"""
cublas@gemm({_SIZES}, u64 a, i32 lda, u64 b, i32 ldb, pointer beta, u64 c, i32 ldc)
cublas@gemmBatched({_SIZES}, pointer a, i32 lda, pointer b, i32 ldb, pointer beta, pointer c, i32 ldc, \
i32 count)
cublas@gemmStridedBatched({_SIZES}, u64 a, i32 lda, u64 stride_a, u64 b, i32 ldb, u64 stride_b, \
pointer beta, u64 c, i32 ldc, u64 stride_c, i32 count)
"""

_OF_VECTORS = """
cublas@gemv_v2(handle blas, i32 transpose, i32 m, i32 n, pointer alpha, u64 a, i32 lda, u64 x, i32 step_x, \
pointer beta, u64 y, i32 step_y)
cublas@axpy_v2(handle blas, i32 n, pointer alpha, u64 x, i32 step_x, u64 y, i32 step_y)
cublas@copy_v2(handle blas, i32 n, u64 x, i32 step_x, u64 y, i32 step_y)
cublas@swap_v2(handle blas, i32 n, u64 x, i32 step_x, u64 y, i32 step_y)
cublas@scal_v2(handle blas, i32 n, pointer alpha, u64 x, i32 step_x)
cublas@dot_v2(handle blas, i32 n, u64 x, i32 step_x, u64 y, i32 step_y, pointer result)
cublas@nrm2_v2(handle blas, i32 n, u64 x, i32 step_x, pointer result)
cublas@asum_v2(handle blas, i32 n, u64 x, i32 step_x, pointer result)
"""

#: Entry points that exist and answer that they are not supported.
_OTHERS = """
cublasSgeam cublasDgeam cublasSger_v2 cublasDger_v2 cublasStrsm_v2 cublasDtrsm_v2 cublasStrmm_v2
cublasSsyrk_v2 cublasDsyrk_v2 cublasIsamax_v2 cublasIdamax_v2 cublasIsamin_v2 cublasSgetrfBatched
cublasDgetrfBatched cublasSgetriBatched cublasDgetriBatched cublasSgetrsBatched cublasSmatinvBatched
cublasCgemm_v2 cublasZgemm_v2 cublasCgemmBatched cublasCgemmStridedBatched cublasSgemmGroupedBatched
cublasGemmGroupedBatchedEx cublasSdgmm cublasDdgmm cublasSsymm_v2 cublasSsymv_v2 cublasStrsv_v2
cublasSrot_v2 cublasAxpyEx cublasDotEx cublasScalEx cublasNrm2Ex cublasXtCreate cublasXtDestroy
cublasXtDeviceSelect cublasXtSetBlockDim cublasXtSgemm cublasLoggerConfigure cublasSetSmCountTarget
cublasGetProperty cublasLtMatrixTransform cublasLtMatrixTransformDescCreate
cublasLtMatrixTransformDescDestroy cublasLtMatmulAlgoInit cublasLtMatmulAlgoGetIds cublasLtMatmulAlgoCheck
cublasLtMatmulAlgoConfigSetAttribute cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulAlgoCapGetAttribute
cublasLtMatmulDescGetAttribute cublasLtMatrixLayoutGetAttribute cublasLtMatmulPreferenceGetAttribute
cublasLtMatmulDescInit_internal cublasLtMatrixLayoutInit_internal cublasLtMatmulPreferenceInit_internal
cublasLtLoggerSetLevel
"""


@cache
def entry_points() -> dict[str, EntryPoint]:
    """Return the declared entry points by name.

    >>> [parameter.name for parameter in entry_points()["cublasSscal_v2"].parameters]
    ['blas', 'n', 'alpha', 'x', 'step_x']
    """
    products = {
        letter: _OF_EACH_TYPE.replace("@", letter).replace("gemm(", "gemm_v2(" if letter != "H" else "gemm(")
        for letter in LETTERS
    }
    vectors = [_OF_VECTORS.replace("@", letter) for letter in "SD"]
    return declared_in("\n".join([_DECLARATIONS, *products.values(), *vectors]))


@cache
def exported_names() -> tuple[str, ...]:
    """Return the names of all entry points, also of those that are not supported."""
    return (*entry_points(), *_OTHERS.split())
