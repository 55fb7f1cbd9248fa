# Starts a script detached from this connection. Usage: job-start.sh NAME TEXT ARGUMENT...
# Its output goes to ~/.clusterctl/jobs/NAME.log, its exit code to NAME.rc. A job that runs already is left alone.
set -eu
name=$1 text=$2
shift 2
jobs=$HOME/.clusterctl/jobs
mkdir -p "$jobs"
if pid=$(cat "$jobs/$name.pid" 2>/dev/null) && [ ! -e "$jobs/$name.rc" ] && kill -0 "$pid" 2>/dev/null; then
  echo already running
  exit
fi
rm -f "$jobs/$name.rc" "$jobs/$name.pid"
setsid nohup bash -c '
  job=$1 text=$2
  shift 2
  echo $$ >"$job.pid"
  bash -c "$text" "$0" "$@"
  echo $? >"$job.rc.new"
  mv "$job.rc.new" "$job.rc"
' "$name" "$jobs/$name" "$text" "$@" </dev/null >"$jobs/$name.log" 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ -s "$jobs/$name.pid" ] && break
  sleep 0.1
done
echo started
