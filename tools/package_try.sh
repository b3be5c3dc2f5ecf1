#!/usr/bin/env bash
# package_try.sh DEB TARBALL: makes bare roots of this machine's distribution from its own apt sources, installs the
# package with apt in one and unpacks the tarball (tools/bundle.sh --libraries) in another, and trains, reports and
# generates in both as an ordinary user without a network. Then purges the package and checks that nothing remains.
# Needs root and mmdebstrap.
set -euo pipefail
deb=$(realpath "$1")
tarball=$(realpath "$2")
[ "$(id -u)" = 0 ] || { echo "error: a root file system is made and entered (chroot): run it as root" >&2; exit 5; }
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
say() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }

# inside ROOT [--net] COMMAND...: runs in the root with its own processes and mounts; with --net also without a network.
inside() {
  local root=$1
  shift
  # shellcheck disable=SC2016
  local enter='mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" "$@"' net=()
  if [ "$1" = --net ]; then net=(--net); shift; fi
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+"http_proxy=$http_proxy"} unshare --mount --pid --fork "${net[@]}" sh -ec "$enter" "$root" "$@"
}

# try ROOT SHARE: runs the commands as an ordinary user. `ingot` is on the root's PATH; SHARE contains recipes and data.
try() {
  # shellcheck disable=SC2016
  inside "$1" --net setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/tmp/home sh -ec '
    mkdir "$HOME"
    ingot --version
    ingot devices
    cp -R "$1" /tmp/try
    cd /tmp/try
    ingot doctor || echo "doctor ends with $?" # on a machine that lacks something
    ingot pretrain recipes/tiny.yaml steps=2 schedule.warmup=1 --quiet
    test "$(grep -c "\"type\":\"step\"" runs/tiny/events.jsonl)" = 2
    ingot report runs/tiny
    ingot generate --model runs/tiny/model --prompt "My fellow" --max-tokens 4
  ' sh "$2"
}

# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mapfile -t sources < <(find /etc/apt \( -name '*.sources' -o -name '*.list' \) -exec grep -lw "$suite" {} +)
mmdebstrap --quiet --variant=apt "$suite" "$work/deb" "${sources[@]}"
cp -a "$work/deb" "$work/tarball"
say "two bare roots of $suite: $(du -sh "$work/deb" | cut -f1) each"

cp "$deb" "$work/deb/tmp/ingot.deb"
inside "$work/deb" sh -ec 'apt-get update -q; cd /tmp; apt-get install -q -y ./ingot.deb'
say "installed the package: $(du -sh "$work/deb" | cut -f1)"
try "$work/deb" /usr/share/ingot
inside "$work/deb" apt-get purge -q -y ingot
left=$(find "$work/deb/usr" -name '*ingot*')
[ -z "$left" ] || { echo "error: after purging the package there is still: $left" >&2; exit 1; }
say "the package works, and is gone when purged"

tar -xzf "$tarball" -C "$work/tarball/opt"
folder=/opt/$(ls "$work/tarball/opt")
ln -s "$folder/bin/ingot" "$work/tarball/usr/bin/ingot"
try "$work/tarball" "$folder"
say "the tarball works"
