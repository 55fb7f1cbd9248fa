# Upgrades or downgrades all installed packages to the versions of a snapshot, then installs packages.
# Usage: packages.sh URL SHA256 PID NAME...
# SHA256 is that of the uncompressed index of the repository; PID is the listening sshd.
# apt works in its own directories: the repository configured on the phone and its lists stay unchanged.
set -u
export DEBIAN_FRONTEND=noninteractive TERMUX_PKG_NO_MIRROR_SELECT=1 LC_ALL=C
url=$1 index=$2 sshd=$3
shift 3
work=$HOME/.clusterctl/apt
trap 'rm -rf "$work"' EXIT
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" || exit
echo "deb [trusted=yes] $url stable main" >"$work/sources.list" || exit
# A priority above 1000 selects the version of the snapshot even if the phone has a newer one.
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
# Termux packages do not state which versions they need, so a partial upgrade breaks them: first everything moves to the
# versions of the snapshot, then new packages are installed.
if [ -n "$(dpkg --audit 2>&1)" ]; then
  dpkg --force-confdef --force-confold --configure -a || exit
fi
# The index comes over plain http, its sha256 over ssh. The index contains the sums of all packages, which apt verifies.
index_matches() {
  local found=("$work"/lists/*_Packages) sum
  sum=$(cat "${found[@]}" | sha256sum)
  [ ${#found[@]} -eq 1 ] && [ "${sum%% *}" = "$index" ] && return
  echo "E: index_mismatch: the received package index has sha256 ${sum%% *}, expected $index" >&2
  return 4
}
openssh() { dpkg-query -W -f '${Version}' openssh; }
before=$(openssh)
"${apt[@]}" --error-on=any update && index_matches && "${apt[@]}" dist-upgrade
rc=$?
# A running sshd whose program was replaced cannot start sessions of the new version: it must re-execute itself.
[ "$(openssh)" = "$before" ] || [ -z "$sshd" ] || { sshd -t && kill -HUP "$sshd"; }
[ $rc -eq 0 ] || exit $rc
"${apt[@]}" install "$@"
