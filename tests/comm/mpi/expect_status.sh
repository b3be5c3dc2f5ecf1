#!/bin/sh
# expect_status.sh STATUS COMMAND...: succeeds when the command exits with exactly that status.
expected=$1
shift
"$@"
status=$?
[ "$status" = "$expected" ] && exit 0
echo "exit status $status, expected $expected: $*" >&2
exit 1
