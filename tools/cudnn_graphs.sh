#!/usr/bin/env bash
# Checks whether a real cuDNN accepts our attention graphs for Hopper, on a machine without a GPU and driver:
# tools/cudnn_graphs.sh PATH/TO/libcudnn.so.9 [BUILD_FOLDER]. cuDNN's engines link to the driver, so a stub libcuda.so.1
# whose functions all fail takes its place; the check needs none of them. Versions before 9.24 also need libcublasLt and
# libnvrtc of the same CUDA in LD_LIBRARY_PATH (packages nvidia-cublas-cu12 and nvidia-cuda-nvrtc-cu12 of PyPI).
set -euo pipefail

library=${1:?the path of libcudnn.so.9}
build=${2:-build/release}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

# The functions that cuDNN 9's engines look up.
functions=(GetErrorString GetErrorName ModuleGetFunction ModuleLoadData ModuleUnload TensorMapEncodeIm2col
  TensorMapEncodeTiled CtxGetCurrent CtxGetLimit CtxPopCurrent CtxPushCurrent StreamGetCtx DriverGetVersion LinkCreate
  LinkAddData LinkComplete LinkDestroy LaunchKernel LaunchCooperativeKernel LaunchKernelEx DeviceGetCount DeviceGet
  LibraryLoadData LibraryLoadFromFile LibraryGetKernel LibraryUnload KernelSetAttribute KernelGetAttribute
  KernelGetFunction OccupancyMaxPotentialClusterSize)
for function in "${functions[@]}"; do
  echo "int cu$function(void) { return 100; }"
done >"$folder/driver.c"
cc -shared -fPIC -Wl,-soname,libcuda.so.1 "$folder/driver.c" -o "$folder/libcuda.so.1"

LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" INGOT_CUDNN_LIBRARY="$library" \
  "$build/tests/test_backend_gpu" --gtest_filter='CudnnGraphs.*'
