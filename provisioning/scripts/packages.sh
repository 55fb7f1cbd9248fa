# Brings this phone to a snapshot: all that is installed, up or down to its version; then installs.
# Usage: packages.sh URL SHA256 PID NAME...
# SHA256 is the sum of the repository's index, uncompressed; PID is the sshd that listens.
# apt works in directories of its own: the phone's configured repository and its lists stay as they are.
set -u
export DEBIAN_FRONTEND=noninteractive TERMUX_PKG_NO_MIRROR_SELECT=1 LC_ALL=C
url=$1 index=$2 sshd=$3
shift 3
work=$HOME/.clusterctl/apt
trap 'rm -rf "$work"' EXIT
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" || exit
echo "deb [trusted=yes] $url stable main" >"$work/sources.list" || exit
# Above 1000: the snapshot's version counts even where the phone has a newer one.
printf '%s\n' 'Package: *' 'Pin: release o=clusterctl' 'Pin-Priority: 1001' >"$work/preferences" || exit

keep=(-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold)
apt=(
  apt-get -y --allow-downgrades "${keep[@]}"
  -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::Etc::preferences="$work/preferences" -o Dir::Etc::preferencesparts=/dev/null
  -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache"
  -o Acquire::Languages=none -o Acquire::GzipIndexes=false -o Acquire::http::Timeout=20 -o Acquire::Retries=2
  -o APT::Install-Recommends=false -o DPkg::Lock::Timeout=180
)
# A partial upgrade breaks Termux, whose packages do not say which versions they need: everything moves to the snapshot
# before anything new comes.
if [ -n "$(dpkg --audit 2>&1)" ]; then
  dpkg --force-confdef --force-confold --configure -a || exit
fi
# The sum came over ssh, the index over plain http; it lists the sums of all packages, which apt checks.
is_ours() {
  local found=("$work"/lists/*_Packages) sum
  sum=$(cat "${found[@]}" | sha256sum)
  [ ${#found[@]} -eq 1 ] && [ "${sum%% *}" = "$index" ] && return
  echo "E: index_mismatch: the package index that arrived has sha256 ${sum%% *}, not $index" >&2
  return 4
}
openssh() { dpkg-query -W -f '${Version}' openssh; }
before=$(openssh)
"${apt[@]}" --error-on=any update && is_ours && "${apt[@]}" dist-upgrade
rc=$?
# An sshd that was replaced under its feet cannot start the new version's sessions: it has to start again itself.
[ "$(openssh)" = "$before" ] || [ -z "$sshd" ] || { sshd -t && kill -HUP "$sshd"; }
[ $rc -eq 0 ] || exit $rc
"${apt[@]}" install "$@"
