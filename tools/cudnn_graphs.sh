#!/usr/bin/env bash
# Asks a real cuDNN whether it accepts our attention graphs for Hopper, on a machine without a GPU and without a driver:
#   tools/cudnn_graphs.sh PATH/TO/libcudnn.so.9 [BUILD_FOLDER]
# cuDNN's engines are linked to the driver, so a libcuda.so.1 stands in whose functions all fail; the check needs none.
set -euo pipefail

library=${1:?the path of libcudnn.so.9}
build=${2:-build/release}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

# What the engines of cuDNN 9 look up.
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
