# Runs the agent self-test. Usage: selftest.sh FINGERPRINT. Prints the report; stores the fingerprint if it passed.
PYTHONPATH=.clusterctl/agent/current timeout 120 python3 -m phone_agent selftest || exit
printf %s "$1" >.clusterctl/selftest.new && mv .clusterctl/selftest.new .clusterctl/selftest
