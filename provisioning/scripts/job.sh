# Background jobs that survive their SSH connection.
# Usage: job.sh start NAME TEXT ARGUMENT...   runs a script detached, unless a job of that name is running
#        job.sh wait NAME SECONDS             waits at most that long; prints the state and the end of the log
#        job.sh stop NAME                     kills the job and its children
# In ~/.clusterctl/jobs: NAME.log is its output, NAME.rc its exit code, NAME.pid its pid, start time and boot id.
set -u
verb=$1 name=$2
shift 2
job=$HOME/.clusterctl/jobs/$name

# Pids are reused; the pid together with the start time and the boot id is unique.
identity() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  read -r -a fields <<<"${stat##*)}"  # the process name before it may contain spaces and brackets
  [ "${fields[0]}" != Z ] && echo "$1 ${fields[19]} $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
}
is_running() {
  local known
  known=$(cat "$job.pid" 2>/dev/null) && [ -n "$known" ] && [ "$(identity "${known%% *}")" = "$known" ]
}

case $verb in
  start)
    text=$1
    shift
    mkdir -p "${job%/*}" || exit
    [ ! -e "$job.rc" ] && is_running && echo already_running && exit
    rm -f "$job.rc" "$job.pid" || exit
    setsid nohup bash -c "$(declare -f identity)"'
      job=$1 text=$2
      shift 2
      identity $$ >"$job.pid.new"
      mv "$job.pid.new" "$job.pid"
      bash -c "$text" "$0" "$@"
      echo $? >"$job.rc.new"
      mv "$job.rc.new" "$job.rc"
    ' "$name" "$job" "$text" "$@" </dev/null >"$job.log" 2>&1 &
    for _ in {1..50}; do
      [ -s "$job.pid" ] && break
      sleep 0.1
    done
    echo started
    ;;
  wait)
    end=$((SECONDS + $1))
    while [ ! -e "$job.rc" ]; do
      is_running || sleep 1  # the exit code may be written a moment later
      [ -e "$job.rc" ] && break
      is_running || { echo lost; exit; }
      [ $SECONDS -ge $end ] && echo running && exit
      sleep 0.5
    done
    echo "ended $(cat "$job.rc")"
    tail -c 8000 "$job.log"
    ;;
  stop)
    is_running || exit 0
    read -r pid _ <"$job.pid"
    kill -TERM -- "-$pid" 2>/dev/null
    for _ in {1..20}; do
      kill -0 -- "-$pid" 2>/dev/null || exit 0
      sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null
    exit 0
    ;;
esac
