// Textures and surfaces, and loads and stores with vectors and cache hints.
__global__ void images(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float4* out, const int4* in) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = threadIdx.y;
  float4 pixel = tex2D<float4>(texture, x + 0.5f, y + 0.5f);
  float level = tex3D<float>(texture, x, y, 1.0f);
  int4 words = __ldcs(in + x);
  short4 written = make_short4(words.x, words.y, __ldg(&in[y].z), words.w);
  surf2Dwrite(written, surface, x * 8, y);
  out[y] = make_float4(pixel.x, pixel.y + level, __int_as_float(surf2Dread<int>(surface, x * 4, y)), pixel.w);
}
