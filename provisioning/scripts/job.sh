# Work that outlives its connection.
# Usage: job.sh start NAME TEXT ARGUMENT...   runs a script detached; one that runs already is left alone
#        job.sh wait NAME SECONDS             waits that long for its end; prints its state and the end of its log
#        job.sh stop NAME                     ends it and all it started
# In ~/.clusterctl/jobs: NAME.log has its output, NAME.rc its exit code, NAME.pid its pid, start time and boot.
set -u
verb=$1 name=$2
shift 2
job=$HOME/.clusterctl/jobs/$name

# A pid is given out again, after a restart or long use; with its start time and the boot it is one process for ever.
identity() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  read -r -a fields <<<"${stat##*)}"  # the name before it may hold spaces and brackets
  [ "${fields[0]}" != Z ] && echo "$1 ${fields[19]} $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
}
runs() {
  local known
  known=$(cat "$job.pid" 2>/dev/null) && [ -n "$known" ] && [ "$(identity "${known%% *}")" = "$known" ]
}

case $verb in
  start)
    text=$1
    shift
    mkdir -p "${job%/*}" || exit
    [ ! -e "$job.rc" ] && runs && echo already_running && exit
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
      runs || sleep 1  # the exit code may be a moment behind
      [ -e "$job.rc" ] && break
      runs || { echo lost; exit; }
      [ $SECONDS -ge $end ] && echo running && exit
      sleep 0.5
    done
    echo "ended $(cat "$job.rc")"
    tail -c 8000 "$job.log"
    ;;
  stop)
    runs || exit 0
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
