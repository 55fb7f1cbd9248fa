# Activates an agent release. Usage: activate-agent.sh RELEASE TREE_SHA256
# The release is in ~/.clusterctl/agent/releases/incoming. It is refused unless its files have the given hash.
set -eu
release=$1 wanted=$2
cd "$HOME/.clusterctl/agent"
found=$(cd releases/incoming && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
if [ "${found%% *}" != "$wanted" ]; then
  rm -rf releases/incoming
  echo "the agent arrived damaged: its files have hash ${found%% *}, not $wanted" >&2
  exit 3
fi
before=$(readlink current || true)
rm -rf "releases/$release"
mv releases/incoming "releases/$release"
swap() { ln -sfn "$1" "$2.new" && mv -fT "$2.new" "$2"; }
[ -z "$before" ] || [ "${before##*/}" = "$release" ] || swap "$before" previous
swap "releases/$release" current
kept=$(readlink previous || true)
for old in releases/*; do
  case ${old##*/} in "$release" | "${kept##*/}") ;; *) rm -rf "$old" ;; esac
done
