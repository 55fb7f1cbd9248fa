# Ends a job and all it started. Usage: job-stop.sh NAME
pid=$(cat "$HOME/.clusterctl/jobs/$1.pid" 2>/dev/null) || exit 0
kill -TERM -- "-$pid" 2>/dev/null
sleep 2
kill -KILL -- "-$pid" 2>/dev/null
exit 0
