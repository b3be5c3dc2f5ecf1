#!/usr/bin/env bash
# Makes build/ingot-VERSION-linux-ARCH.tar.gz: the executable (without a library path of this machine), recipes, data,
# licence, tools/gpu_check with its files, the MPI plug-in's source and script, and a README that lists the required
# shared libraries and the packages that provide them here. With --libraries these libraries are included (in lib/,
# where the executable finds them), except glibc and the compiler's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
executable=build/release/ingot
libraries=''
case ${1-} in
  '') ;;
  --libraries) libraries=1 ;;
  *) echo "error: unknown argument '$1'; usage: tools/bundle.sh [--libraries]" >&2; exit 2 ;;
esac
version=$(sed -nE 's/^project\(ingot VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
name=ingot-$version-linux-$(uname -m)
stage=build/bundle/$name

if readelf -d "$executable" | grep -E 'R(UN)?PATH'; then
  echo "error: $executable carries a library path of this machine, so it cannot be moved" >&2
  exit 1
fi
rm -rf build/bundle
mkdir -p "$stage/bin" "$stage/tools" "$stage/bench"
cp "$executable" "$stage/bin/ingot" # its debug information is in another file
cp -R recipes data LICENSE "$stage/"
cp tools/gpu_check tools/gpu_check_peers.py tools/gpu_check_ncu.py tools/gpu_paper.json tools/mpi_plugin.sh src/comm/mpi_plugin.c src/comm/mpi_plugin.h "$stage/tools/"
cp -R bench/models "$stage/bench/"
commit=$(git rev-parse --short=12 HEAD)
[ -z "$(git status --porcelain --untracked-files=no)" ] || commit+=-changed
echo "$commit" >"$stage/commit"
if [ -n "$libraries" ]; then
  mkdir "$stage/lib"
  ldd "$executable" | awk '$2 == "=>" {print $3}' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+)\.so' |
    while read -r library; do cp -L "$library" "$stage/lib/"; done
  patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$stage/bin/ingot" # RPATH: for the libraries' libraries too
fi

# package_of FILE: the package that installed it. dpkg may know it under its path from before the /usr merge.
package_of() {
  { dpkg-query -S "$(readlink -f "$1")" || dpkg-query -S "${1#/usr}"; } 2>/dev/null | head -n 1 | cut -d: -f1
}

# shellcheck disable=SC2016,SC1091
{
  printf '# Ingot %s\n\n`bin/ingot` runs from wherever this folder lies; `bin/ingot --help` lists its commands.\n' "$version"
  printf '`tools/gpu_check` says whether a GPU computes what it should, and how fast.\n'
  printf '`tools/mpi_plugin.sh bin/libingot-mpi.so`, with your mpicc, lets your mpirun and srun start `bin/ingot`.\n\n'
  printf 'Built on %s. It needs these shared libraries:\n\n| library | package |\n|---|---|\n' \
    "$(. /etc/os-release && echo "$PRETTY_NAME")"
  ldd "$executable" | awk '$2 == "=>" {print $1, $3}' | sort | while read -r library path; do
    printf '| %s | %s |\n' "$library" "$(package_of "$path")"
  done
} >"$stage/README.md"
if grep -E '\| \|$|\| not' "$stage/README.md"; then
  echo "error: the package of a library is unknown (above)" >&2
  exit 1
fi

"$stage/bin/ingot" --version >/dev/null
tar -C build/bundle --sort=name --owner=0 --group=0 --numeric-owner -czf "build/$name.tar.gz" "$name"
echo "build/$name.tar.gz: $(du -h "build/$name.tar.gz" | cut -f1)"
