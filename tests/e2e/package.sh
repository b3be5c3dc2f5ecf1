#!/usr/bin/env bash
# package.sh INGOT SOURCE_ROOT: checks the package that tools/package.sh makes from the executable INGOT, without
# installing it.
set -euo pipefail
ingot=$1
root=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*" >&2; exit 1; }

"$root/tools/package.sh" --executable "$ingot" --out "$work" --fast
deb=$(echo "$work"/ingot_*.deb)
[ -f "$deb" ] || fail "expected one package, found: $deb"
[ "$(dpkg-deb -f "$deb" Package)" = ingot ] || fail "the package's name is $(dpkg-deb -f "$deb" Package)"
[ "$(dpkg-deb -f "$deb" Version)" = "$("$ingot" --version)-1" ] || fail "the package's version is $(dpkg-deb -f "$deb" Version)"
[ "$(dpkg-deb -f "$deb" Architecture)" = "$(dpkg --print-architecture)" ] || fail "the package is for another architecture"

# Every shared library of the executable must be in a package that the .deb depends on, by the package's name or one that it
# provides. dpkg may know a library under the path before /usr was merged.
depends=$(dpkg-deb -f "$deb" Depends | sed -E 's/ *\([^)]*\)//g; s/, /\n/g')
found=0
while read -r name; do
  path=$(ldd "$ingot" | awk -v name="$name" '$1 == name {print $3}')
  [ -n "$path" ] || continue # the loader itself
  package=$({ dpkg-query -S "$(readlink -f "$path")" || dpkg-query -S "${path#/usr}"; } 2>/dev/null | head -n 1)
  package=${package%%:*}
  names=$(dpkg-query -W -f='${Package}, ${Provides}' "$package" | sed -E 's/ *\([^)]*\)//g; s/, /\n/g')
  grep -qxF "$names" <<<"$depends" || fail "$name of $package is not in: ${depends//$'\n'/, }"
  found=$((found + 1))
done < <(readelf -d "$ingot" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ $found -ge 10 ] || fail "only $found libraries were compared"

dpkg-deb --contents "$deb" >"$work/contents"
if grep -v ' root/root ' "$work/contents"; then fail "files of another user (above)"; fi
dpkg-deb -x "$deb" "$work/root"
for file in usr/bin/ingot usr/share/doc/ingot/copyright usr/share/doc/ingot/changelog.gz usr/share/ingot/mpi/mpi_plugin.sh \
  usr/share/ingot/mpi/mpi_plugin.c usr/share/doc/ingot/docs/recipes.md usr/share/man/man1/ingot.1.gz; do
  [ -f "$work/root/$file" ] || fail "$file is missing"
done
for folder in recipes data; do
  diff -r "$root/$folder" "$work/root/usr/share/ingot/$folder" || fail "$folder differs"
done
(cd "$work" && dpkg-deb -e "$deb" control && cd root && md5sum --quiet -c ../control/md5sums) || fail "a digest differs"
[ "$("$work/root/usr/bin/ingot" --version)" = "$("$ingot" --version)" ] || fail "the installed program does not start"
cd "$work/root/usr/share/ingot"
INGOT_HOME=$work/home "$work/root/usr/bin/ingot" pretrain recipes/tiny.yaml --dry-run >"$work/plan" 2>&1 ||
  fail "its recipe is refused: $(cat "$work/plan")"

"$root/tools/package.sh" --executable "$ingot" --out "$work/again" --fast >/dev/null
cmp "$deb" "$work/again/$(basename "$deb")" || fail "the same executable gives another package"
