# Has a job ended? Usage: job-wait.sh NAME SECONDS. Waits that long, then prints its state and the end of its log.
job=$HOME/.clusterctl/jobs/$1
end=$((SECONDS + $2))
while [ ! -e "$job.rc" ]; do
  kill -0 "$(cat "$job.pid" 2>/dev/null)" 2>/dev/null || sleep 1  # the exit code may be a moment behind
  [ -e "$job.rc" ] && break
  kill -0 "$(cat "$job.pid" 2>/dev/null)" 2>/dev/null || { echo lost; exit; }
  [ $SECONDS -ge $end ] && echo running && exit
  sleep 0.5
done
echo "ended $(cat "$job.rc")"
tail -c 8000 "$job.log"
