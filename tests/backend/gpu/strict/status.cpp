#include "tests/backend/gpu/strict/status.h"

namespace strict {
namespace {

struct Name {
  Status status;
  const char* cuda;
  const char* hip;
};
constexpr Name names[] = {
    {success, "CUDA_SUCCESS", "hipSuccess"},
    {invalid_value, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue"},
    {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory"},
    {not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "hipErrorNotInitialized"},
    {invalid_configuration, nullptr, "hipErrorInvalidConfiguration"},
    {invalid_device, "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice"},
    {invalid_image, "CUDA_ERROR_INVALID_IMAGE", "hipErrorInvalidImage"},
    {invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext"},
    {no_binary_for_gpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "hipErrorNoBinaryForGpu"},
    {invalid_kernel_file, "CUDA_ERROR_INVALID_PTX", "hipErrorInvalidKernelFile"},
    {unsupported_ptx_version, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", nullptr},
    {shared_object_init_failed, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "hipErrorSharedObjectInitFailed"},
    {invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle"},
    {illegal_state, "CUDA_ERROR_ILLEGAL_STATE", "hipErrorIllegalState"},
    {not_found, "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound"},
    {not_ready, "CUDA_ERROR_NOT_READY", "hipErrorNotReady"},
    {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress"},
    {launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure"},
    {capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "hipErrorStreamCaptureUnsupported"},
    {capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "hipErrorStreamCaptureInvalidated"},
    {capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "hipErrorStreamCaptureIsolation"},
    {capture_wrong_thread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "hipErrorStreamCaptureWrongThread"},
    {unknown, "CUDA_ERROR_UNKNOWN", "hipErrorUnknown"},
};

}  // namespace

const char* status_name(Status status, bool hip) {
  for (const Name& name : names) {
    if (name.status == status) return hip ? name.hip : name.cuda;
  }
  return nullptr;
}

}  // namespace strict
