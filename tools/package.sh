#!/usr/bin/env bash
# package.sh [--executable FILE] [--out FOLDER] [--maintainer "NAME <MAIL>"] [--fast]: makes
# FOLDER/ingot_VERSION_ARCH.deb (default: build) with the executable (default: build/release/ingot), recipes, data,
# docs, and the source and script of the MPI plug-in, which a site builds with its own MPI. dpkg-shlibdeps finds the
# packages of the executable's shared libraries for this distribution. GPU libraries are not dependencies: they are
# loaded at run time where present. The result is reproducible. --fast: little compression, for tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
executable=build/release/ingot
out=build
maintainer='Ingot developers <ingot@example.org>'
compression=(-Zxz)
while [ $# -gt 0 ]; do
  case $1 in
    --executable) executable=${2?} ;;
    --out) out=${2?} ;;
    --maintainer) maintainer=${2?} ;;
    --fast) compression=(-Zgzip -z1); shift; continue ;;
    *) echo "error: unknown argument '$1'; the first lines of tools/package.sh say what it takes" >&2; exit 2 ;;
  esac
  shift 2
done
version=$(sed -nE 's/^project\(ingot VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)-1
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) # the time of every file in the package
export SOURCE_DATE_EPOCH

if readelf -d "$executable" | grep -E 'R(UN)?PATH'; then
  echo "error: $executable carries a library path of this machine, so it cannot be moved" >&2
  exit 1
fi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
share=$root/usr/share/ingot
doc=$root/usr/share/doc/ingot
umask 022
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/man/man1" "$share/mpi" "$doc"
strip --strip-unneeded -o "$root/usr/bin/ingot" "$executable" # its debug information is in another file
cp -R recipes data "$share/"
cp -R README.md docs "$doc/"
cp tools/mpi_plugin.sh src/comm/mpi_plugin.c src/comm/mpi_plugin.h "$share/mpi/"

{
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: ingot\n\n'
  printf 'Files: *\nCopyright: %s the Ingot developers\nLicense: Apache-2.0\n' "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y)"
  printf ' On Debian systems the license is in /usr/share/common-licenses/Apache-2.0.\n'
  printf '\nFiles: usr/share/ingot/data/sotu/*\nCopyright: none\nLicense: public-domain\n'
  printf ' Speeches of presidents of the United States; data/sotu/README.md says where they are from.\n'
} >"$doc/copyright"
gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
{
  commit=$(git rev-parse --short=12 HEAD)
  [ -z "$(git status --porcelain --untracked-files=no)" ] || commit+=-changed
  printf 'ingot (%s) unstable; urgency=medium\n\n  * Built from commit %s; changelog.gz lists the changes.\n\n' \
    "$version" "$commit"
  printf ' -- %s  %s\n' "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.Debian.gz"

{
  printf '.TH INGOT 1 "%s" "ingot %s"\n' "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" "${version%-*}"
  printf '.SH NAME\ningot \\- pretrain, fine-tune and serve language models\n.SH DESCRIPTION\n.nf\n'
  "$executable" --help | sed 's/\\/\\e/g; s/-/\\-/g; s/^/\\\&/'
  printf '.fi\n.SH FILES\n/usr/share/ingot: recipes, their data and the MPI plug\\-in; /usr/share/doc/ingot/docs\n'
} | gzip -9n >"$root/usr/share/man/man1/ingot.1.gz"

# dpkg-shlibdeps expects the source package's control file.
mkdir "$stage/debian"
printf 'Source: ingot\n\nPackage: ingot\nArchitecture: any\n' >"$stage/debian/control"
depends=$(cd "$stage" && dpkg-shlibdeps -O root/usr/bin/ingot | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "error: dpkg-shlibdeps found no dependency of $executable" >&2; exit 1; }
chmod -R u=rwX,go=rX "$root"
{
  printf 'Package: ingot\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$version" "$architecture" "$maintainer"
  printf 'Section: science\nPriority: optional\nInstalled-Size: %s\n' "$(du -sk --apparent-size "$root/usr" | cut -f1)"
  printf 'Depends: %s\nRecommends: ca-certificates\n' "$depends"
  printf 'Description: pretrain, fine-tune and serve language models\n'
  printf ' One program for CPUs, NVIDIA and AMD GPUs: pretraining and LoRA or full\n fine-tuning from recipes, '
  printf "and a server with OpenAI's HTTP API. Model files\n are those of Hugging Face and llama.cpp (GGUF).\n .\n"
  printf ' GPU drivers and libraries are loaded where there are any.\n'
} >"$root/DEBIAN/control"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

mkdir -p "$out"
package=$out/ingot_${version}_$architecture.deb
dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$package" >/dev/null
echo "$package: $(du -h --apparent-size "$package" | cut -f1), $(du -sh --apparent-size "$root/usr" | cut -f1) installed"
