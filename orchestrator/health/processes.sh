# Which processes run here. Facts of the user's own ones only: Android shows no others.

# ticks PID: when it started and what it has computed, in hundredths of a second
ticks() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  read -r -a fields <<<"${stat##*)}"  # the name before it may hold spaces and brackets
  echo "${fields[19]} $((fields[11] + fields[12]))"
}

# Package managers: `PID NAME` a line
managers() {
  local process name
  for process in /proc/[0-9]*; do
    [ -O "$process" ] && read -r name 2>/dev/null <"$process/comm" || continue
    case $name in dpkg | apt | apt-get | pkg) echo "${process##*/} $name" ;; esac
  done
}

# find_sshd: in $sshd the one that listens (the outermost ancestor that is one), in $supervisor who would start it again:
# boot (Termux:Boot's script, its process in $supervisor_pid), runit, none
find_sshd() {
  local pid=$$ name parent key value
  sshd= supervisor=none supervisor_pid=
  while [ "$pid" -gt 1 ] && [ -r "/proc/$pid/status" ]; do
    name= parent=0
    while read -r key value; do
      case $key in Name:) name=$value ;; PPid:) parent=$value && break ;; esac
    done <"/proc/$pid/status"
    case $name in
      sshd*) sshd=$pid supervisor=none ;;
      runsv) supervisor=runit ;;
      *)
        if [ -n "$sshd" ] && [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") == */.termux/boot/* ]]; then
          supervisor=boot supervisor_pid=$pid
        fi
        ;;
    esac
    pid=$parent
  done
}
