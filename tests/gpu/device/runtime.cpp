// The CUDA runtime's functions over host memory: launches are counted and not executed, copies and waits are told.
// Preloaded into a CUDA build of PyTorch; signatures are those of cuda_runtime_api.h.
#include "record.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr long CONTEXT_BYTES = 600'000'000;  // that a process takes of a real device before its first tensor
constexpr size_t LARGE = 65'536;             // bytes that PRETENDED_FAST does not touch
constexpr int MULTIPROCESSORS = 132, MAJOR = 9, MINOR = 0;  // an H100

struct State {
  std::mutex lock;
  std::unordered_map<const void*, std::string> kernels;  // by the address that stands for them on the host
  std::map<std::string, long> launches;
  std::map<char*, size_t> device, pinned;  // blocks by address
  std::atomic<long> num_launches{0}, used{CONTEXT_BYTES};
  std::atomic<pretended_listener> listener{nullptr};
};

// Never destroyed: kernels are registered before and released after everything else of the process.
State& state() {
  static State* only = new State;
  return *only;
}

thread_local bool is_telling = false;
thread_local int current_device = 0;

bool lies_in(std::map<char*, size_t>& blocks, const void* address) {
  std::lock_guard<std::mutex> guard(state().lock);
  auto next = blocks.upper_bound((char*)address);
  if (next == blocks.begin()) return false;
  auto block = std::prev(next);
  return (char*)address < block->first + block->second;
}

bool is_fast() {
  static const bool fast = getenv("PRETENDED_FAST") != nullptr;
  return fast;
}

const char* kind_of_copy(void* to, const void* from) {
  const bool to_device = lies_in(state().device, to), from_device = lies_in(state().device, from);
  if (to_device && from_device) return "copy on the device";
  if (to_device) return lies_in(state().pinned, from) ? "copy to the device" : "pageable copy to the device";
  if (from_device) return lies_in(state().pinned, to) ? "copy to the host" : "pageable copy to the host";
  return "copy on the host";
}

cudaError_t allocate(std::map<char*, size_t>& blocks, void** address, size_t size, size_t alignment) {
  if (posix_memalign(address, alignment, size ? size : 1)) return cudaErrorMemoryAllocation;
  std::lock_guard<std::mutex> guard(state().lock);
  blocks[(char*)*address] = size;
  return cudaSuccess;
}

size_t forget(std::map<char*, size_t>& blocks, void* address) {
  std::lock_guard<std::mutex> guard(state().lock);
  auto block = blocks.find((char*)address);
  if (block == blocks.end()) return 0;
  const size_t size = block->second;
  blocks.erase(block);
  return size;
}

cudaError_t launch(const void* kernel) {
  std::string name = "unnamed";
  {
    std::lock_guard<std::mutex> guard(state().lock);
    auto found = state().kernels.find(kernel);
    if (found != state().kernels.end()) name = found->second;
  }
  pretended_launch(name.c_str());
  return cudaSuccess;
}

// A wait of the host. It lasts as long as the file is there that PRETENDED_HANG names, as for a kernel that never ends;
// the file is no longer empty then.
cudaError_t wait_for(const char* what) {
  static const char* file = getenv("PRETENDED_HANG");
  pretended::notify(what);
  bool has_told = false;
  while (file && access(file, F_OK) == 0) {
    if (!has_told) std::ofstream(file) << what;
    has_told = true;
    usleep(10'000);
  }
  return cudaSuccess;
}

CUresult succeed() { return CUDA_SUCCESS; }

}  // namespace

namespace pretended {

void notify(const char* what, long bytes) {
  const pretended_listener listener = state().listener;
  if (!listener || is_telling) return;
  is_telling = true;
  listener(what, bytes);
  is_telling = false;
}

long number_from(const char* variable, long otherwise) {
  const char* value = getenv(variable);
  return value ? atol(value) : otherwise;
}

double total_bytes() {
  const char* value = getenv("PRETENDED_GB");
  return (value ? atof(value) : 79.1) * 1073741824.0;
}

}  // namespace pretended

EXPORT void pretended_listen(pretended_listener listener) { state().listener = listener; }
EXPORT long pretended_launches() { return state().num_launches; }
EXPORT void pretended_reset() {
  std::lock_guard<std::mutex> guard(state().lock);
  state().launches.clear();
  state().num_launches = 0;
}
EXPORT void pretended_launch(const char* name) {
  std::lock_guard<std::mutex> guard(state().lock);
  state().num_launches++;
  state().launches[name]++;
}
EXPORT const char* pretended_report() {
  static std::string text;
  std::lock_guard<std::mutex> guard(state().lock);
  text.clear();
  for (const auto& [name, count] : state().launches) text += std::to_string(count) + "\t" + name + "\n";
  return text.c_str();
}

// ---- devices

EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  if (getenv("PRETENDED_OLD_DRIVER")) {
    *count = 0;
    return cudaErrorInsufficientDriver;
  }
  *count = pretended::number_from("PRETENDED_DEVICES", 1);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= pretended::number_from("PRETENDED_DEVICES", 1)) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
EXPORT cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "NVIDIA H100 80GB HBM3 (pretended)");
  properties->totalGlobalMem = (size_t)pretended::total_bytes();
  properties->major = MAJOR;
  properties->minor = MINOR;
  properties->multiProcessorCount = MULTIPROCESSORS;
  properties->warpSize = 32;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = 232448;
  properties->sharedMemPerMultiprocessor = 233472;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->l2CacheSize = 52428800;
  properties->memoryBusWidth = 5120;
  properties->textureAlignment = 512;
  properties->unifiedAddressing = properties->concurrentKernels = 1;
  properties->asyncEngineCount = 3;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<int, int> values = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMultiProcessorCount, MULTIPROCESSORS},
      {cudaDevAttrComputeCapabilityMajor, MAJOR},
      {cudaDevAttrComputeCapabilityMinor, MINOR},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
      {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
      {cudaDevAttrL2CacheSize, 52428800},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
  };
  auto found = values.find(attribute);
  *value = found == values.end() ? 1 : found->second;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaDeviceGetPCIBusId(char* name, int size, int device) {
  snprintf(name, size, "0000:%02x:00.0", device);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetLastError() { return cudaSuccess; }
EXPORT cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

// ---- memory

EXPORT cudaError_t cudaMalloc(void** address, size_t size) {
  if (state().used + (double)size > pretended::total_bytes()) return cudaErrorMemoryAllocation;
  const cudaError_t error = allocate(state().device, address, size, 512);
  if (error) return error;
  state().used += size;
  if (!is_fast()) memset(*address, 0, size);
  return cudaSuccess;
}
EXPORT cudaError_t cudaFree(void* address) {
  state().used -= forget(state().device, address);
  free(address);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMallocAsync(void** address, size_t size, cudaStream_t) { return cudaMalloc(address, size); }
EXPORT cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }
EXPORT cudaError_t cudaHostAlloc(void** address, size_t size, unsigned) {
  return allocate(state().pinned, address, size, 4096);
}
EXPORT cudaError_t cudaFreeHost(void* address) {
  forget(state().pinned, address);
  free(address);
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostRegister(void* address, size_t size, unsigned) {
  std::lock_guard<std::mutex> guard(state().lock);
  state().pinned[(char*)address] = size;
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostUnregister(void* address) {
  forget(state().pinned, address);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  *total = (size_t)pretended::total_bytes();
  *available = *total - state().used;
  return cudaSuccess;
}
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  memset(attributes, 0, sizeof *attributes);
  attributes->device = current_device;
  attributes->type = cudaMemoryTypeUnregistered;
  const bool on_device = lies_in(state().device, address);
  if (on_device || lies_in(state().pinned, address)) {
    attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = (void*)address;
    if (!on_device) attributes->hostPointer = (void*)address;
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  pretended::notify("wait for a copy", size);
  memmove(to, from, size);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t) {
  const char* kind = kind_of_copy(to, from);
  pretended_launch(kind);
  pretended::notify(kind, size);
  const bool skip = is_fast() && size > LARGE && !strcmp(kind, "copy on the device");
  if (size && !skip) memmove(to, from, size);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemset(void* address, int value, size_t size) {
  pretended_launch("memset");
  memset(address, value, size);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemsetAsync(void* address, int value, size_t size, cudaStream_t) {
  pretended_launch("memset");
  if (!is_fast() || size < LARGE) memset(address, value, size);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
EXPORT cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  static char somewhere[1 << 20];
  *address = somewhere;
  return cudaSuccess;
}

// ---- streams and events: everything is over at once

EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = (cudaStream_t)malloc(8);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t) { return wait_for("wait for a stream"); }
EXPORT cudaError_t cudaDeviceSynchronize() { return wait_for("wait for the device"); }
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                            cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  if (status) *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = (cudaEvent_t)malloc(8);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t) { return wait_for("wait for an event"); }
EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

// ---- kernels

EXPORT void __cudaRegisterFunction(void** module, const char* host, char* device, const char* name, int limit,
                                   uint3* thread, uint3* block, dim3* block_size, dim3* grid_size, int* warp_size) {
  {
    std::lock_guard<std::mutex> guard(state().lock);
    state().kernels[host] = name;
  }
  using Register = decltype(&__cudaRegisterFunction);
  static const Register next = (Register)dlsym(RTLD_NEXT, "__cudaRegisterFunction");
  if (next) next(module, host, device, name, limit, thread, block, block_size, grid_size, warp_size);
}
EXPORT cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launch(kernel);
}
EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) { return launch(kernel); }
EXPORT cudaError_t __cudaGetKernel(void** kernel, const void* symbol) {
  *kernel = (void*)symbol;
  return cudaSuccess;
}
EXPORT cudaError_t __cudaLaunchKernel(void* kernel, dim3, dim3, void**, size_t, cudaStream_t) { return launch(kernel); }
EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->binaryVersion = attributes->ptxVersion = 10 * MAJOR + MINOR;
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* number, const void*, int, size_t,
                                                                          unsigned) {
  *number = 2;
  return cudaSuccess;
}
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult* result) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* found = driver ? dlsym(driver, name) : nullptr;
  *function = found ? found : (void*)succeed;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
