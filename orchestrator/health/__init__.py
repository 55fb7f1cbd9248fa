"""Health of phones: facts, checks, fixes. Used by `status`, `doctor` and the preflight of `launch`.

vitals              what `status` shows of a phone, in one round trip
phone_health        the state of a phone, from its vitals
doctor_facts        what `doctor` collects: one session per phone, one bounded script (examine.sh)
checks/             pure functions from those facts to findings
fixes               what can be fixed over SSH; what needs adb is printed as commands (adb_commands)
preflight           which phones can take part in a run
"""
