# Prints facts about Android. Usage: android.sh INTERFACE PACKAGE...; run by /system/bin/sh over adb; read-only.
# One fact per line, fields separated by tabs.
fact() { printf '%s' "$1"; shift; for word in "$@"; do printf '\t%s' "$word"; done; printf '\n'; }

fact begin 1
interface=$1
shift
for name in ro.serialno ro.build.version.sdk ro.build.version.release ro.product.model ro.product.cpu.abilist \
  sys.boot_completed; do
  fact prop "$name" "$(getprop "$name")"
done
fact boot "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
fact user "$(am get-started-user-state 0 2>/dev/null)"
dumpsys window policy 2>/dev/null | while read -r line; do
  case $line in secure=*) fact lock_secure "${line#secure=}" ;; esac
done
df -k /data 2>/dev/null | { read -r _; read -r _ _ _ available _; fact disk_kb "$available"; }

for name in stay_on_while_plugged_in wifi_on mobile_data captive_portal_mode ntp_server auto_time \
  settings_enable_monitor_phantom_procs; do
  fact setting "$name" "$(settings get global "$name" 2>/dev/null)"
done
fact phantom "$(device_config get activity_manager max_phantom_processes 2>/dev/null)"
# Android 12 has only the second command, later versions the first.
fact sync "$(device_config get_sync_disabled_for_tests 2>/dev/null)" \
  "$(device_config is_sync_disabled_for_tests 2>/dev/null)"
dumpsys deviceidle whitelist 2>/dev/null | while read -r line; do fact whitelist "$line"; done
fact link "$(ip -o link show dev "$interface" 2>/dev/null)"

for package in "$@"; do
  path=$(pm path "$package" 2>/dev/null | while read -r line; do echo "${line#package:}" && break; done)
  [ -n "$path" ] || continue
  sum=$(sha256sum "$path" 2>/dev/null)
  fact package "$package" "${sum%% *}"
  dumpsys package "$package" 2>/dev/null | while read -r line; do
    case $line in
      "User 0:"* | installerPackageName=* | android.permission.*granted=true*)
        fact about "$package" "$line" ;;
    esac
  done
done

fact run_as "$(run-as com.termux id -u 2>&1)"
fact login "$(run-as com.termux sh -c '[ -x /data/data/com.termux/files/usr/bin/login ] && echo yes' 2>/dev/null)"
fact end 1
