# Functions about processes of this user: Android shows no others.

# ticks PID: prints its start time and CPU time, in hundredths of a second
ticks() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  read -r -a fields <<<"${stat##*)}"  # the process name before it may contain spaces and brackets
  echo "${fields[19]} $((fields[11] + fields[12]))"
}

# managers: prints `PID NAME` of each package manager
managers() {
  local process name
  for process in /proc/[0-9]*; do
    [ -O "$process" ] && read -r name 2>/dev/null <"$process/comm" || continue
    case $name in dpkg | apt | apt-get | pkg) echo "${process##*/} $name" ;; esac
  done
}

# find_sshd: sets $sshd to the listening sshd (the outermost one among the ancestors), and $supervisor to what restarts it:
# boot (the script of Termux:Boot, whose process is $supervisor_pid), runit, none
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
