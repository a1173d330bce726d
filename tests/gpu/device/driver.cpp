// The driver's functions that PyTorch and Triton ask libcuda.so.1 for; the rest answer with success.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#undef cuGetProcAddress

#define EXPORT extern "C" __attribute__((visibility("default")))
#define SUCCEEDS(name) \
  EXPORT CUresult succeeds_##name() __asm__(#name); \
  CUresult succeeds_##name() { return CUDA_SUCCESS; }

namespace {

constexpr size_t TOTAL_BYTES = 85'000'000'000;

void count_triton(const char* name) {
  using Launch = void (*)(const char*);
  static const Launch launch = (Launch)dlsym(RTLD_DEFAULT, "pretended_launch");
  if (launch) launch((std::string("triton ") + name).c_str());
}

CUresult succeed() { return CUDA_SUCCESS; }

CUresult new_module(CUmodule* module) {
  *module = (CUmodule)malloc(8);
  return CUDA_SUCCESS;
}

}  // namespace

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetCount(int* count) {
  const char* value = getenv("PRETENDED_DEVICES");
  *count = value ? atoi(value) : 1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  snprintf(name, size, "NVIDIA H100 (pretended)");
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = TOTAL_BYTES;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetInfo_v2(size_t* available, size_t* total) {
  *available = *total = TOTAL_BYTES;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  static const std::map<int, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
  };
  auto found = values.find(attribute);
  *value = found == values.end() ? 1 : found->second;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = (CUcontext)0x1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return cuCtxGetCurrent(context); }
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* is_active) {
  if (flags) *flags = 0;
  if (is_active) *is_active = 1;
  return CUDA_SUCCESS;
}
SUCCEEDS(cuDevicePrimaryCtxRelease_v2)
SUCCEEDS(cuCtxSetCurrent)
SUCCEEDS(cuCtxSynchronize)
SUCCEEDS(cuCtxPushCurrent_v2)
SUCCEEDS(cuCtxPopCurrent_v2)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxSetLimit)

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) { return new_module(module); }
EXPORT CUresult cuModuleLoad(CUmodule* module, const char*) { return new_module(module); }
EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return new_module(module);
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = (CUfunction)strdup(name);  // a function is its name
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule, const char*) {
  static char somewhere[4096];
  *address = (CUdeviceptr)somewhere;
  if (size) *size = 8;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) *value = 64;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, CUstream, void**, void**) {
  count_triton((const char*)function);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction function, void**, void**) {
  count_triton((const char*)function);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int* number, CUfunction, const CUlaunchConfig*) {
  *number = 66;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* number, CUfunction, int, size_t) {
  *number = 2;
  return CUDA_SUCCESS;
}
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuFuncSetCacheConfig)
SUCCEEDS(cuTensorMapEncodeTiled)
SUCCEEDS(cuTensorMapEncodeIm2col)
SUCCEEDS(cuStreamSynchronize)
SUCCEEDS(cuEventCreate)
SUCCEEDS(cuMemsetD8Async)
SUCCEEDS(cuMemcpyDtoHAsync_v2)
SUCCEEDS(cuMemcpyHtoDAsync_v2)

EXPORT CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
    *(CUdeviceptr*)value = address;
  else
    *(int*)value = CU_MEMORYTYPE_DEVICE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "pretended";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorName(CUresult error, const char** text) { return cuGetErrorString(error, text); }

EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult* result) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  *function = dlsym(driver, name);
  if (!*function) *function = dlsym(driver, (std::string(name) + "_v2").c_str());
  if (!*function) *function = (void*)succeed;
  if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}
EXPORT CUresult first_version(const char*, void**, int, cuuint64_t) __asm__("cuGetProcAddress");
CUresult first_version(const char* name, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
